package layout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

func descs(pairs ...[2]uint64) (list []ports.Descriptor) {
	for _, p := range pairs {
		list = append(list, ports.Descriptor{Addr: p[0], Bytes: p[1]})
	}
	return list
}

func onDevice(device uint32, list []ports.Descriptor) []ports.Descriptor {
	for i := range list {
		list[i].Place.Device = device
	}
	return list
}

func TestReadJSON(t *testing.T) {
	l, err := layout.Read(strings.NewReader(`{
		"dst": [[0, 100], [18446744073709551614, 1]], "src": [[7, 101]], "src_device": 2}
	`), layout.JSON)
	require.NoError(t, err)
	require.Equal(t, layout.Layout{
		Src:      onDevice(2, descs([2]uint64{7, 101})),
		Dst:      descs([2]uint64{0, 100}, [2]uint64{math.MaxUint64 - 1, 1}),
		SrcBlock: 108,
		DstBlock: math.MaxUint64,
	}, l)
}

// An address may be hexadecimal, in JSON as a string.
func TestReadHexAddresses(t *testing.T) {
	for format, text := range map[layout.Format]string{
		layout.CSV:  "src,0x7f00,16\nsrc, 0XABcd ,1\ndst,0x0,16\ndst,0xfffffffffffffffe,1\n",
		layout.JSON: `{"src":[["0x7f00",16],["0XABcd",1]],"dst":[["0x0",16],["0xfffffffffffffffe",1]]}`,
	} {
		l, err := layout.Read(strings.NewReader(text), format)
		require.NoError(t, err)
		require.Equal(t, descs([2]uint64{0x7f00, 16}, [2]uint64{0xabcd, 1}), l.Src)
		require.Equal(t, descs([2]uint64{0, 16}, [2]uint64{math.MaxUint64 - 1, 1}), l.Dst)
	}
}

func TestReadCSV(t *testing.T) {
	for name, text := range map[string]string{
		"plain":  "src,7,101\ndst,0,100\ndst,200,1\n",
		"header": "side,addr,bytes\nsrc,7,101\ndst,0,100\ndst,200,1",
		"spaces": "\r\n src , 7, 101 \r\n\r\ndst,0,100\r\ndst,200,1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := layout.Read(strings.NewReader(text), layout.CSV)
			require.NoError(t, err)
			require.Equal(t, layout.Layout{
				Src:      descs([2]uint64{7, 101}),
				Dst:      descs([2]uint64{0, 100}, [2]uint64{200, 1}),
				SrcBlock: 108,
				DstBlock: 201,
			}, l)
		})
	}
}

// Some programs put a byte order mark before what they write.
func TestReadByteOrderMark(t *testing.T) {
	for format, text := range map[layout.Format]string{layout.CSV: "side,addr,bytes\nsrc,0,1\ndst,0,1\n", layout.JSON: `{"src":[[0,1]],"dst":[[0,1]]}`} {
		want, err := layout.Read(strings.NewReader(text), format)
		require.NoError(t, err)
		got, err := layout.Read(iotest.OneByteReader(strings.NewReader("\xef\xbb\xbf"+text)), format)
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = layout.Read(strings.NewReader("\xef\xbb\xbf\xef\xbb\xbf"+text), format)
		require.ErrorContains(t, err, "line 1", "one of them")
	}
}

func TestReadNothing(t *testing.T) {
	l, err := layout.Read(strings.NewReader(`{"src":[],"dst":[]}`), layout.JSON)
	require.NoError(t, err)
	require.Equal(t, layout.Layout{}, l)
	l, err = layout.Read(strings.NewReader(""), layout.CSV)
	require.NoError(t, err)
	require.Equal(t, layout.Layout{}, l)
}

// Descriptors without bytes need no memory, wherever they are.
func TestEmptyDescriptorsTakeNoBlock(t *testing.T) {
	l, err := layout.Read(strings.NewReader("src,5000,0\nsrc,10,1\n"), layout.CSV)
	require.NoError(t, err)
	require.EqualValues(t, 11, l.SrcBlock)
}

func TestReadErrors(t *testing.T) {
	long := strings.Repeat("9", 5000)
	cases := []struct {
		format layout.Format
		text   string
		want   string
	}{
		{layout.JSON, ``, "layout line 1: the layout: the file ends too early"},
		{layout.JSON, `[]`, "layout line 1: the layout: found [, want {"},
		{layout.JSON, `{"src":[[1,2]]}`, "layout line 1: dst is missing"},
		{layout.JSON, `{"dst":[[1,2]]}`, "layout line 1: src is missing"},
		{layout.JSON, `{"src":[],"src":[]}`, "layout line 1: src is there twice"},
		{layout.JSON, `{"source":[]}`, `layout line 1: unknown field "source", want src, dst, src_device or dst_device`},
		{layout.JSON, `{"src":{}}`, "layout line 1: src: found {, want ["},
		{layout.JSON, "{\"src\":[[1,2],\n[3,-4]]}", `layout line 2: src[1]: bytes is "-4", want a whole number from 0 to 18446744073709551615`},
		{layout.JSON, `{"src":[[18446744073709551616,1]]}`, `layout line 1: src[0]: addr is "18446744073709551616", want a whole number`},
		{layout.JSON, `{"src":[[4096.0,1]]}`, `layout line 1: src[0]: addr is "4096.0", want a whole number`},
		{layout.JSON, `{"src":[[1e3,1]]}`, `layout line 1: src[0]: addr is "1e3", want a whole number`},
		{layout.JSON, `{"src":[["1",1]]}`, `layout line 1: src[0]: addr is "1", want a whole number or a string "0x…"`},
		{layout.JSON, `{"src":[[0x10,1]]}`, `layout line 1: src`},
		{layout.JSON, `{"src":[["0x",1]]}`, `layout line 1: src[0]: addr is "0x", want 0x and 1 to 16 hexadecimal digits`},
		{layout.JSON, `{"src":[["0x10000000000000000",1]]}`, `layout line 1: src[0]: addr is "0x10000000000000000", want 0x and 1 to 16`},
		{layout.JSON, `{"src":[["0xffffffffffffffff",1]]}`, "does not fit 64 bits"},
		{layout.JSON, `{"src":[[1,"0x10"]]}`, `layout line 1: src[0]: bytes is "0x10", want a whole number`},
		{layout.JSON, `{"src":[[1]]}`, "layout line 1: src[0]: bytes is ], want a whole number"},
		{layout.JSON, `{"src":[[1,2,3]]}`, "layout line 1: src[0]: a descriptor: found 3, want ]"},
		{layout.JSON, `{"src":[7]}`, "layout line 1: src[0]: a descriptor: found 7, want ["},
		{layout.JSON, `{"src":[[18446744073709551615,1]]}`, "layout line 1: src[0]: addr 18446744073709551615 + bytes 1 does not fit 64 bits"},
		{layout.JSON, `{"src":[],"dst":[],"src_device":4294967296}`, "layout line 1: src_device is 4294967296, want at most 4294967295"},
		{layout.JSON, `{"src":[],"dst":[],"dst_device":null}`, "layout line 1: dst_device is <nil>, want a whole number"},
		{layout.JSON, `{"src":[],"dst":[]} x`, "layout line 1: something follows the layout"},
		{layout.JSON, `{"src":[[1,2]`, "layout line 1: src: the file ends too early"},
		{layout.JSON, `{"src":[[1,2]}`, "layout line 1: src"},
		{layout.JSON, `{"src":[[` + long + `,1]]}`, "layout line 1: src[0]: addr is \"" + long[:40] + "…\", want a whole number"},
		{layout.CSV, "src,1,2\nsrc,1", "layout line 2: 2 fields, want side,addr,bytes"},
		{layout.CSV, "src,1,2,3", "layout line 1: 4 fields, want side,addr,bytes"},
		{layout.CSV, "source,1,2", `layout line 1: side is "source", want src or dst`},
		{layout.CSV, "src,0x1g,2", `layout line 1: addr is "0x1g", want 0x and 1 to 16 hexadecimal digits`},
		{layout.CSV, "src,0x-1,2", `layout line 1: addr is "0x-1", want 0x and 1 to 16 hexadecimal digits`},
		{layout.CSV, "src,10h,2", `layout line 1: addr is "10h", want a whole number`},
		{layout.CSV, "src,1,0x10", `layout line 1: bytes is "0x10", want a whole number`},
		{layout.CSV, "src,1,4K", `layout line 1: bytes is "4K", want a whole number`},
		{layout.CSV, "src,1,", `layout line 1: bytes is "", want a whole number`},
		{layout.CSV, "\nside,addr,bytes", `layout line 2: addr is "addr", want a whole number`},
		{layout.CSV, "src,1,18446744073709551615", "layout line 1: addr 1 + bytes 18446744073709551615 does not fit 64 bits"},
		{layout.CSV, "src,1,2\nsrc," + long, "layout line 2 is longer than 4096 bytes"},
		{"yaml", "", `layout format "yaml", want json or csv`},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%.40s", c.text), func(t *testing.T) {
			l, err := layout.Read(strings.NewReader(c.text), c.format)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 200)
			require.Equal(t, layout.Layout{}, l)
		})
	}
}

func TestReadPassesTheReadersErrorOn(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, format := range []layout.Format{layout.JSON, layout.CSV} {
		_, err := layout.Read(io.MultiReader(strings.NewReader("\n"), iotest.ErrReader(broken)), format)
		require.ErrorIs(t, err, broken)
	}
}

// Both formats say the same, and what was written is read.
func TestReadWhatWasWritten(t *testing.T) {
	pair := rapid.Custom(func(t *rapid.T) [2]uint64 {
		length := rapid.Uint64().Draw(t, "length")
		return [2]uint64{rapid.Uint64Max(math.MaxUint64-length).Draw(t, "addr"), length}
	})
	rapid.Check(t, func(t *rapid.T) {
		src, dst := rapid.SliceOf(pair).Draw(t, "src"), rapid.SliceOf(pair).Draw(t, "dst")
		text, err := json.Marshal(map[string]any{"src": src, "dst": dst})
		require.NoError(t, err)
		fromJSON, err := layout.Read(strings.NewReader(string(text)), layout.JSON)
		require.NoError(t, err)

		var lines strings.Builder
		for _, p := range src {
			fmt.Fprintf(&lines, "src,%d,%d\n", p[0], p[1])
		}
		for _, p := range dst {
			fmt.Fprintf(&lines, "dst,%d,%d\n", p[0], p[1])
		}
		fromCSV, err := layout.Read(strings.NewReader(lines.String()), layout.CSV)
		require.NoError(t, err)

		require.Equal(t, descs(src...), fromJSON.Src)
		require.Equal(t, descs(dst...), fromJSON.Dst)
		require.Equal(t, fromJSON, fromCSV)
	})
}

// Whatever the bytes, reading neither panics nor makes more descriptors than the text has room for.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"src":[[0,1]],"dst":[[0,1]],"src_device":1,"dst_device":0}`), true)
	f.Add([]byte("side,addr,bytes\nsrc,0,1\ndst,0,1\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool) {
		format := layout.CSV
		if isJSON {
			format = layout.JSON
		}
		l, err := layout.Read(strings.NewReader(string(text)), format)
		if err != nil {
			require.Equal(t, layout.Layout{}, l)
			return
		}
		require.LessOrEqual(t, 5*(len(l.Src)+len(l.Dst)), len(text))
		for _, d := range l.Src {
			end, ok := d.End()
			require.True(t, ok)
			require.True(t, d.Bytes == 0 || end <= l.SrcBlock)
		}
	})
}
