package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestNackBytes(t *testing.T) {
	sameBytes(t, "nack", sampleNack())
	sameBytes(t, "nack_chunk", sampleChunkNack())
	sameBytes(t, "nack_drain", sampleDrainNack())
}

func TestNackRejects(t *testing.T) {
	text := func(s string) []byte { return append([]byte{1, 0, 0, 0}, s...) }
	rejects(t, "NACK", sampleChunkNack(), []rejection{
		reject("region 0 for one chunk", "region", u64At(atRegion, 0)),
		reject("chunk not below chunks", "chunk", u32At(atChunk, 3)),
		reject("chunks 0 for one chunk", "chunk", u32At(atChunk, 0), u32At(atChunks, 0)),
		reject("region for the whole request", "region", u32At(atChunk, wire.WholeRequest)),
		reject("count", "count", u32At(atCount, 1)),
		reject("no payload", "length", payload()),
		reject("payload without a whole reason", "length", payload(1, 0, 0)),
		reject("reason 0", "reason", payload(0, 0, 0, 0)),
		reject("text of 257 bytes", "text", payload(text(strings.Repeat("x", 257))...)),
		reject("text that is not UTF-8", "text", payload(text("\xff")...)),
		reject("text that ends inside a rune", "text", payload(text("\xe2\x82")...)),
	})
	rejects(t, "NACK", sampleNack(), []rejection{
		reject("whole request, region", "region", u64At(atRegion, 901)),
		reject("whole request, count", "count", u32At(atCount, 1)),
	})
}

func TestNackCheck(t *testing.T) {
	ok := func(change func(*wire.Nack)) *wire.Nack {
		n := sampleChunkNack()
		change(n)
		return n
	}
	checksRefuse(t, "NACK", []unencodable{
		{"request", "request", ok(func(n *wire.Nack) { n.Request = 0 })},
		{"region 0 for one chunk", "region", ok(func(n *wire.Nack) { n.Region = 0 })},
		{"region for the whole request", "region", ok(func(n *wire.Nack) { n.Chunk = wire.WholeRequest })},
		{"chunk", "chunk", ok(func(n *wire.Nack) { n.Chunks = 2 })},
		{"reason", "reason", ok(func(n *wire.Nack) { n.Reason = 0 })},
		{"long text", "text", ok(func(n *wire.Nack) { n.Text = strings.Repeat("x", wire.MaxTextBytes+1) })},
		{"text that is not UTF-8", "text", ok(func(n *wire.Nack) { n.Text = "\xff" })},
	})
}

func TestNackWholeRequestCarriesAnyChunks(t *testing.T) {
	for _, chunks := range []uint32{0, 1, 1<<32 - 1} {
		n := sampleNack()
		n.Chunks = chunks
		sameAfterTrip(t, n)
	}
}

func TestNackLongestText(t *testing.T) {
	n := sampleNack()
	n.Text = strings.Repeat("é", wire.MaxTextBytes/2)
	sameAfterTrip(t, n)
}

func TestCutText(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"short", "queue is full", "queue is full"},
		{"exactly the limit", long + "y", long + "y"},
		{"one more", long + "yz", long + "y"},
		{"a rune across the limit", long + "é", long},
		{"a rune up to the limit", long[1:] + "é!", long[1:] + "é"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"grows beyond the limit", long[:254] + "\xff", long[:254]},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, wire.CutText(c.in)) })
	}
}

func TestCutTextIsAlwaysSendable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "text"))
		if rapid.Bool().Draw(t, "UTF-8") {
			in = rapid.StringN(0, 400, 600).Draw(t, "text")
		}
		n := sampleNack()
		n.Text = wire.CutText(in)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(in) && !strings.HasPrefix(in, n.Text) {
			t.Fatalf("%q is not the beginning of %q", n.Text, in)
		}
		if utf8.ValidString(in) && len(in) > wire.MaxTextBytes && len(n.Text) <= wire.MaxTextBytes-utf8.UTFMax {
			t.Fatalf("cut to %d bytes, more than a rune too many", len(n.Text))
		}
	})
}
