// Package plan turns the two descriptor lists of a request into chunks, and each chunk into runs: which bytes of the source go where in the
// bounce block, and which of the block go where in the destination (protocol.md, 5).
//
// # Pieces
//
// The lists may be cut differently. A piece is the longest stretch of bytes that is contiguous in the source and in the destination: both lists are
// cut at both sides' boundaries, and neighbours that continue on both sides are joined again. Descriptors of 0 bytes take no part in anything.
//
// # Places
//
// The pieces of a chunk stand in its block in order, without overlap. One of at least VectorBytes begins at a multiple of Alignment, where copies can use the
// widest loads and stores; a shorter one begins where the one before it ended, since it is copied in narrow steps wherever it stands, and alignment would only
// make the write longer.
//
// # Cuts
//
// The request's bytes are shared evenly among the chunks that Limits.Chunks asks for, or, when that needs fewer bytes a chunk than ChunkBytes allows, among as few chunks as hold them. A
// chunk may be up to 1/16 longer or shorter than its share to keep a piece whole: a page that is cut breaks the runs on both sides of it. A longer piece is cut, at a
// multiple of Alignment from its start, so that its parts keep the alignment it had. ChunkBytes itself, padding included, is never exceeded.
package plan

import (
	"errors"
	"fmt"
	"math"

	"github.com/kvbounce/kvbounce/ports"
)

// Limits of wire 3 (protocol.md, 3 and 5) and what follows from them.
const (
	// MaxDataBytes is the most bytes of one chunk's DATA message, header included.
	MaxDataBytes = 4 << 20
	// MaxChunks is the most chunks of one request.
	MaxChunks = 65536
	// MaxChunkBytes is the longest block of one chunk.
	MaxChunkBytes = math.MaxUint32
	// MaxChunkPieces keeps a chunk's DATA within MaxDataBytes whatever its runs turn out to be: no chunk has more runs than pieces.
	MaxChunkPieces = (MaxDataBytes - dataFixedBytes) / dataRunBytes

	// Alignment is the distance, in bytes, of the places at which long pieces begin in a block.
	Alignment = 32
	// VectorBytes is the shortest piece that is aligned: the widest single load and store.
	VectorBytes = 16

	dataFixedBytes = 40 + 8 // message header; index count and reserved word
	dataRunBytes   = 40
	dataIndexBytes = 4
)

// Errors of Begin and Next. Those of Begin carry the side and the lowest wrong descriptor index in their text, where a descriptor is to blame.
var (
	// ErrLimits: the Limits are out of range.
	ErrLimits = errors.New("planner limits out of range")
	// ErrOverflow: a descriptor, or the sum of a list, does not fit 64 bits.
	ErrOverflow = errors.New("does not fit 64 bits")
	// ErrPlaces: one list has memory of several places.
	ErrPlaces = errors.New("one request has one place per side")
	// ErrTotals: the lists do not hold the same number of bytes.
	ErrTotals = errors.New("source and destination differ in bytes")
	// ErrTooManyChunks: the request needs more than MaxChunks chunks.
	ErrTooManyChunks = errors.New("too many chunks")
	// ErrChanged: the descriptors are not the ones that Begin saw.
	ErrChanged = errors.New("descriptors changed while their request was planned")
)

// Limits say how a request is cut into chunks.
type Limits struct {
	// ChunkBytes is the most bytes of one chunk's block, 1 to MaxChunkBytes: the chunk limit negotiated with the peer, or less where smaller chunks
	// pipeline better.
	ChunkBytes uint64
	// Chunks is how many chunks to aim at, at most MaxChunks; 0 aims at as few as ChunkBytes allows.
	Chunks int
}

func (l Limits) validate() error {
	if l.ChunkBytes < 1 || l.ChunkBytes > MaxChunkBytes {
		return fmt.Errorf("%w: ChunkBytes is %d, want 1 to %d", ErrLimits, l.ChunkBytes, uint64(MaxChunkBytes))
	}
	if l.Chunks < 0 || l.Chunks > MaxChunks {
		return fmt.Errorf("%w: Chunks is %d, want 0 to %d", ErrLimits, l.Chunks, MaxChunks)
	}
	return nil
}

// Summary is what routing wants to know of a request.
type Summary struct {
	Descriptors int    // of the longer list, those of 0 bytes included
	Pieces      int    // before chunk boundaries cut some of them again
	Bytes       uint64 // of the request, without padding
}

// Chunk is the part of a request that travels in one bounce block.
type Chunk struct {
	Bytes  uint32 // of the block, padding between pieces included
	Pieces int    // parts of pieces that a chunk boundary cut count as pieces
	// Gather and Scatter cover the same places of the block. Addr is in the source in Gather's runs, in the destination in Scatter's.
	Gather, Scatter ports.Runs
}

// DataBytes is the size of this chunk's DATA message in bytes, header included and envelope not (protocol.md, 3).
func (c *Chunk) DataBytes() int {
	return dataFixedBytes + dataRunBytes*len(c.Scatter.Runs) + dataIndexBytes*len(c.Scatter.Index)
}

// Planner plans one request at a time: Begin, then Next until it answers false. It keeps its scratch from request to request, so that planning allocates
// nothing once it has seen a request as large. The zero value is ready. Not for concurrent use.
type Planner struct {
	cutter  cutter
	walk    walker
	batch   batch
	next    int // the chunk that Next plans
	gather  runBuilder
	scatter runBuilder
}

// New makes a Planner.
func New() *Planner { return new(Planner) }

// Begin checks a request and finds its chunks without building runs, so that the sizes can be sent before anything else is known (WANT). It forgets the request
// before. src and dst must not change until Next answered false or Begin is called again. After an error there are no chunks.
//
// Errors wrap ErrLimits, ErrOverflow, ErrPlaces, ErrTotals or ErrTooManyChunks.
func (p *Planner) Begin(src, dst []ports.Descriptor, lim Limits) (Summary, error) {
	p.walk, p.next = walker{}, 0
	p.cutter.reset()
	if err := lim.validate(); err != nil {
		return Summary{}, err
	}
	total, alike, err := checkLists(src, dst)
	if err != nil {
		return Summary{}, err
	}
	start := walker{src: src, dst: dst, alike: alike}
	pieces, err := p.findCuts(start, lim, total)
	if err != nil {
		p.cutter.reset()
		return Summary{}, err
	}
	p.walk = start
	return Summary{Descriptors: max(len(src), len(dst)), Pieces: pieces, Bytes: total}, nil
}

// findCuts fills the cutter's list of chunks and counts the pieces.
func (p *Planner) findCuts(walk walker, lim Limits, total uint64) (pieces int, err error) {
	if err := p.cutter.begin(lim, total); err != nil {
		return 0, err
	}
	for walk.fill(&p.batch, batchPieces) {
		pieces += p.batch.pieces
		if err := p.cutter.add(p.batch.strip[:p.batch.strips]); err != nil {
			return 0, err
		}
	}
	return pieces, p.cutter.finish()
}

// ChunkBytes is the length of each chunk's block, in order: what WANT carries. Each is at least 1, and what Next makes of that chunk has exactly that length.
// The slice is the Planner's and valid until the next Begin.
func (p *Planner) ChunkBytes() []uint32 { return p.cutter.sizes }

// Next plans the next chunk into c, whose slices it reuses; it answers false after the last one, with c unchanged. An error (ErrChanged) ends the request: the descriptors
// were changed since Begin, and nothing in c is to be used.
func (p *Planner) Next(c *Chunk) (ok bool, err error) {
	if p.next == len(p.cutter.cuts) {
		p.walk = walker{} // lets go of the caller's lists
		return false, nil
	}
	cut, block := p.cutter.cuts[p.next], p.cutter.sizes[p.next]
	p.gather.begin(c.Gather.Runs)
	p.scatter.begin(c.Scatter.Runs)
	b, end := &p.batch, uint64(0)
	for left := int(cut.pieces); left > 0; left -= b.pieces {
		if !p.walk.fill(b, left) {
			return false, ErrChanged
		}
		if b.pieces == left && !p.walk.clip(b, cut.last) {
			return false, ErrChanged
		}
		if end, ok = b.place(end, block); !ok {
			return false, ErrChanged
		}
		p.gather.add(b.src[:b.pieces], b.strip[:b.strips])
		p.scatter.add(b.dst[:b.pieces], b.strip[:b.strips])
	}
	if end != uint64(block) {
		return false, ErrChanged
	}
	p.next++
	c.Bytes, c.Pieces = block, int(cut.pieces)
	c.Gather = ports.Runs{Runs: p.gather.end(), Index: c.Gather.Index[:0]}
	c.Scatter = ports.Runs{Runs: p.scatter.end(), Index: c.Scatter.Index[:0]}
	return true, nil
}
