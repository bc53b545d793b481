package nixl

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

var anyDescriptor = rapid.Custom(func(t *rapid.T) ports.Descriptor {
	d := ports.Descriptor{
		Addr:  rapid.Uint64().Draw(t, "addr"),
		Place: ports.Place{Kind: rapid.SampledFrom([]ports.MemoryKind{ports.Host, ports.Device}).Draw(t, "kind"), Device: rapid.Uint32().Draw(t, "device")},
	}
	d.Bytes = rapid.Uint64Range(1, max(1, math.MaxUint64-d.Addr)).Draw(t, "bytes")
	if _, ok := d.End(); !ok {
		d.Addr--
	}
	return d
})

var anyOffer = rapid.Custom(func(t *rapid.T) *offer {
	name := rapid.StringMatching(`[a-z é]{1,20}`).Draw(t, "name")
	id, err := ports.NewIdentity(name, rapid.Uint64().Draw(t, "incarnation"))
	if err != nil {
		t.Fatal(err)
	}
	o := &offer{
		identity:      id,
		version:       rapid.SampledFrom([]string{"", "1.5.1"}).Draw(t, "version"),
		sharedControl: rapid.Bool().Draw(t, "shared"),
		revision:      rapid.Uint64().Draw(t, "revision"),
		machine:       rapid.Uint64().Draw(t, "machine"),
		uid:           rapid.Uint32().Draw(t, "uid"),
		ranges:        rapid.SliceOfN(anyDescriptor, 0, 5).Draw(t, "ranges"),
		blob:          rapid.SliceOf(rapid.Byte()).Draw(t, "blob"),
	}
	o.removal = rapid.Uint64Range(0, o.revision).Draw(t, "removal")
	return o
})

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyOffer.Draw(t, "offer")
		envelope := want.marshal()
		got, err := unmarshal(envelope)
		require.NoError(t, err)
		require.Equal(t, want.marshal(), got.marshal())
		require.Equal(t, want.identity, got.identity)
		require.Equal(t, len(want.ranges), len(got.ranges))
		require.True(t, slices.Equal(want.ranges, got.ranges))
		require.Equal(t, string(want.blob), string(got.blob))

		// It keeps copies.
		clear(envelope)
		require.Equal(t, want.marshal(), got.marshal())
	})
}

func TestMetadataNoticesDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envelope := anyOffer.Draw(t, "offer").marshal()
		damaged := slices.Clone(envelope)
		for range rapid.IntRange(1, 3).Draw(t, "bits") {
			bit := rapid.IntRange(0, 8*len(damaged)-1).Draw(t, "bit")
			damaged[bit/8] ^= 1 << (bit % 8)
		}
		if slices.Equal(damaged, envelope) {
			return // two flips of one bit
		}
		_, err := unmarshal(damaged)
		require.ErrorIs(t, err, ports.ErrBadMetadata)
		cut := rapid.IntRange(0, len(envelope)-1).Draw(t, "cut")
		_, err = unmarshal(envelope[:cut])
		require.ErrorIs(t, err, ports.ErrBadMetadata)
	})
}

// A correct checksum is no promise: whoever can send metadata can make one.
func TestMetadataRefusesWhatDoesNotHold(t *testing.T) {
	good := &offer{identity: "a#0123456789abcdef", revision: 3, removal: 2, ranges: []ports.Descriptor{{Addr: 4096, Bytes: 10}}, blob: []byte("blob")}
	bad := map[string]func(o *offer){
		"identity":                 func(o *offer) { o.identity = "a" },
		"removal":                  func(o *offer) { o.removal = 4 },
		"range 0":                  func(o *offer) { o.ranges[0].Bytes = 0 },
		"does not fit 64 bits":     func(o *offer) { o.ranges[0].Addr = math.MaxUint64 - 5 },
		"memory kind":              func(o *offer) { o.ranges[0].Place.Kind = 2 },
		"NIXL's metadata of \"b\"": func(o *offer) { o.blob = []byte(blobMagic + "\x01\x00\x00\x00\x00\x00\x00\x00b|") },
	}
	for words, spoil := range bad {
		o := *good
		o.ranges = slices.Clone(good.ranges)
		spoil(&o)
		_, err := unmarshal(o.marshal())
		require.ErrorIs(t, err, ports.ErrBadMetadata, words)
		require.ErrorContains(t, err, words)
	}
	_, err := unmarshal(good.marshal())
	require.NoError(t, err)
}

func TestMetadataBytes(t *testing.T) {
	o := &offer{
		identity: "a#0123456789abcdef", version: "1.5.1", sharedControl: true, revision: 3, removal: 2, machine: 0x1122334455667788, uid: 1000,
		ranges: []ports.Descriptor{{Addr: 0x7f0000001000, Bytes: 0x2000, Place: ports.Place{Kind: ports.Device, Device: 7}}}, blob: []byte("blob"),
	}
	want := `
4b564258 01000000 ` + hex.EncodeToString(o.marshal()[8:12]) + ` 01000000
0300000000000000 0200000000000000 8877665544332211 e8030000
12000000 05000000 01000000 04000000
6123303132333435363738396162636465 66 312e352e31
001000 00007f0000 0020000000000000 07000000 01000000
626c6f62`
	require.Equal(t, strings.Join(strings.Fields(want), ""), hex.EncodeToString(o.marshal()))
}

func TestNameInside(t *testing.T) {
	for blob, want := range map[string]string{
		blobMagic + "\x02\x00\x00\x00\x00\x00\x00\x00ab|rest": "ab",
		blobMagic + "\x00\x00\x00\x00\x00\x00\x00\x00|":       "",
		"another format": "-",
		blobMagic:        "-",
		blobMagic + "\xff\xff\xff\xff\xff\xff\xff\xffab": "-",
		blobMagic + "\x03\x00\x00\x00\x00\x00\x00\x00ab": "-",
	} {
		name, ok := nameInside([]byte(blob))
		require.Equal(t, want != "-", ok, "%q", blob)
		if ok {
			require.Equal(t, want, name)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	o := &offer{identity: "a#0123456789abcdef", version: "1.5.1", revision: 3, removal: 2, ranges: []ports.Descriptor{{Addr: 4096, Bytes: 10}}, blob: []byte("blob")}
	f.Add(o.marshal())
	f.Add([]byte(metadataMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// With the checksum put right the fuzzer gets past it.
		if len(b) >= metadataHeader {
			b = slices.Clone(b)
			copy(b, metadataMagic)
			b[4], b[5], b[6], b[7] = metadataFormat, 0, 0, 0
			sum := checksum(b)
			b[8], b[9], b[10], b[11] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		}
		o, err := unmarshal(b)
		if err != nil {
			require.ErrorIs(t, err, ports.ErrBadMetadata)
			return
		}
		require.Equal(t, b, o.marshal())
	})
}
