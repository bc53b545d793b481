package wire

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// dataFixedBytes is a DATA's payload before the runs: the number of indices, reserved.
const dataFixedBytes = 4 + 4

// Data says that a chunk is written to its region, and where its pieces go.
type Data struct {
	Request uint64 // at least 1
	Region  uint64 // at least 1
	Chunk   uint32 // below Chunks
	Chunks  uint32 // chunks in the request
	Runs    ports.Runs
}

// DataBytes is the size of a DATA message, header included.
func DataBytes(runs, indices int) uint64 {
	return HeaderBytes + dataFixedBytes + RunBytes*uint64(runs) + 4*uint64(indices)
}

func (d *Data) payloadBytes() uint64 {
	return DataBytes(len(d.Runs.Runs), len(d.Runs.Index)) - HeaderBytes
}

// Check implements Message.
func (d *Data) Check() error {
	const t = TypeData
	if err := cmp.Or(checkRequest(t, d.Request), checkPlace(t, d.Region, d.Chunk, d.Chunks), checkLength(t, "runs", d.payloadBytes())); err != nil {
		return err
	}
	return CheckRuns(d.Runs)
}

// Append implements Message.
func (d *Data) Append(dst []byte) []byte {
	length := d.payloadBytes()
	dst = slices.Grow(dst, HeaderBytes+int(length))
	dst = appendHeader(dst, Header{
		Type: TypeData, Request: d.Request, Region: d.Region, Chunk: d.Chunk, Chunks: d.Chunks,
		Count: uint32(len(d.Runs.Runs)), Length: uint32(length),
	})
	dst = le.AppendUint32(dst, uint32(len(d.Runs.Index)))
	dst = le.AppendUint32(dst, 0) // reserved
	dst = appendRuns(dst, d.Runs.Runs)
	return appendUint32s(dst, d.Runs.Index)
}

// Decode implements Message.
func (d *Data) Decode(b []byte) error {
	const t = TypeData
	h, payload, err := open(b, t)
	if err != nil {
		return err
	}
	if err := needPayload(t, payload, dataFixedBytes); err != nil {
		return err
	}
	indices, reserved := uint64(le.Uint32(payload)), le.Uint32(payload[4:])
	if reserved != 0 {
		return wrong(t.String(), "reserved", reserved, "0")
	}
	records := payload[dataFixedBytes:]
	if most := uint64(len(records)) / 4; indices > most {
		return wrong(t.String(), "indices", indices, fmt.Sprintf("at most the %d that the payload holds", most))
	}
	runs := records[:uint64(len(records))-4*indices]
	if err := h.checkCount(runs, RunBytes); err != nil {
		return err
	}
	d.Request, d.Region, d.Chunk, d.Chunks = h.Request, h.Region, h.Chunk, h.Chunks
	d.Runs.Runs = resize(d.Runs.Runs, int(h.Count))
	readRuns(d.Runs.Runs, runs)
	d.Runs.Index = resize(d.Runs.Index, int(indices))
	readUint32s(d.Runs.Index, records[len(runs):])
	return d.Check()
}
