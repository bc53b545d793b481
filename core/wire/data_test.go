package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestDataBytes(t *testing.T) {
	sameBytes(t, "data", sampleData())
	require.EqualValues(t, len(golden(t, "data")), wire.DataBytes(3, 4))
}

func TestDataRejects(t *testing.T) {
	const atIndices, atReserved, atRuns = atPayload, atPayload + 4, atPayload + 8
	const third = atRuns + 2*wire.RunBytes
	rejects(t, "DATA", sampleData(), []rejection{
		reject("region 0", "region", u64At(atRegion, 0)),
		reject("chunk not below chunks", "chunk", u32At(atChunk, 3)),
		reject("whole request", "chunk", u32At(atChunk, wire.WholeRequest)),
		reject("whole request, region 0", "chunk", u32At(atChunk, wire.WholeRequest), u64At(atRegion, 0)),
		reject("whole request of 2^32-1 chunks", "chunk", u32At(atChunk, wire.WholeRequest), u32At(atChunks, 0xFFFFFFFF)),
		reject("chunks 0", "chunk", u32At(atChunk, 0), u32At(atChunks, 0)),
		reject("no runs", "count", u32At(atCount, 0), payload(0, 0, 0, 0, 0, 0, 0, 0)),
		reject("no payload", "length", payload()),
		reject("payload without its fixed fields", "length", payload(0, 0, 0, 0, 0, 0, 0)),
		reject("count above the payload", "count", u32At(atCount, 4)),
		reject("count of 2^32-1", "count", u32At(atCount, 0xFFFFFFFF)),
		reject("count below the payload", "count", u32At(atCount, 2)),
		reject("indices above the payload", "indices", u32At(atIndices, 0xFFFFFFFF)),
		reject("indices one above the payload", "indices", u32At(atIndices, (3*wire.RunBytes+16)/4+1)),
		reject("indices swallow a run", "count", u32At(atIndices, 5)),
		reject("an index left over", "length", u32At(atIndices, 3)),
		reject("a byte left over", "length", longer(0)),
		reject("a byte too few", "count", shorter(1)),
		reject("reserved", "reserved", u32At(atReserved, 1)),
		reject("piece 0", "runs[2].piece", u32At(third+24, 0)),
		reject("pieces 0", "runs[2].pieces", u32At(third+28, 0)),
		reject("offset at the end of 64 bits", "runs[2].offset", u64At(third, 1<<64-1)),
		reject("table past the indices", "runs[2].table", u32At(third+36, 2)),
		reject("table of 2^32-2", "runs[2].table", u32At(third+36, 0xFFFFFFFE)),
		reject("more than 2^32-1 bytes", "runs[2].pieces", u32At(third+24, 0xFFFFFFFF)),
	})
}

func TestDataCheck(t *testing.T) {
	ok := func(change func(*wire.Data)) *wire.Data {
		d := sampleData()
		change(d)
		return d
	}
	checksRefuse(t, "DATA", []unencodable{
		{"request", "request", ok(func(d *wire.Data) { d.Request = 0 })},
		{"region", "region", ok(func(d *wire.Data) { d.Region = 0 })},
		{"chunk", "chunk", ok(func(d *wire.Data) { d.Chunk = 3 })},
		{"chunks", "chunk", ok(func(d *wire.Data) { d.Chunk, d.Chunks = 0, 0 })},
		{"no runs", "runs", ok(func(d *wire.Data) { d.Runs.Runs = nil })},
		{"a run", "runs[1].piece", ok(func(d *wire.Data) { d.Runs.Runs[1].Piece = 0 })},
	})
}

func TestDataManyRuns(t *testing.T) {
	d := &wire.Data{Request: 1, Region: 1, Chunks: 1}
	for i := range uint64(100_000) {
		d.Runs.Runs = append(d.Runs.Runs, ports.Run{Offset: i * 32, Addr: i * 4096, Piece: 32, Pieces: 1, Table: wire.NoTable})
	}
	require.NoError(t, d.Check())
	got, err := wire.Decode(encode(d))
	require.NoError(t, err)
	require.Equal(t, d, got)
}

// A DATA with indices that no run uses is legal; so is one run that uses them all.
func TestDataIndicesAreOptional(t *testing.T) {
	d := sampleData()
	d.Runs.Runs = d.Runs.Runs[:1]
	sameAfterTrip(t, d)
	d.Runs.Index = nil
	sameAfterTrip(t, d)
}

func sameAfterTrip(t *testing.T, m wire.Message) {
	t.Helper()
	require.NoError(t, m.Check())
	got, err := wire.Decode(encode(m))
	require.NoError(t, err)
	require.Equal(t, m, got)
}

// The two extremes of a 72 MiB request's chunks: a run for each of 18432 pieces, and one page list that 72 layers share.
func BenchmarkData(b *testing.B) {
	scattered, paged := &wire.Data{Request: 1, Region: 1, Chunks: 1}, &wire.Data{Request: 1, Region: 1, Chunks: 1}
	for i := range uint64(18432) {
		scattered.Runs.Runs = append(scattered.Runs.Runs, ports.Run{Offset: i * 4096, Addr: i * 8192, Piece: 4096, Pieces: 1, Table: wire.NoTable})
	}
	for i := range uint64(72) {
		paged.Runs.Runs = append(paged.Runs.Runs, ports.Run{Offset: i * 256 * 4096, Addr: i << 30, Stride: 4096, Piece: 4096, Pieces: 256, Step: 4096})
	}
	for i := range uint32(256) {
		paged.Runs.Index = append(paged.Runs.Index, i*7)
	}
	for name, d := range map[string]*wire.Data{"scattered": scattered, "paged": paged} {
		encoded := encode(d)
		b.Run(name+"/append", func(b *testing.B) {
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				encoded = d.Append(encoded[:0])
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if err := d.Decode(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
