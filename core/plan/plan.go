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
// # Runs
//
// Each side's pieces become runs (protocol.md, 3): at a constant stride, or, where their order is irregular, with an index table, which other runs use again where the same list of pages
// comes back, as it does for every layer of a cache. The comment of runBuilder says which pieces become what.
//
// # Cuts
//
// The request's bytes are shared evenly, or tapered, among the chunks that the Limits ask for, or, when that needs fewer bytes a chunk than ChunkBytes allows, among as few chunks as hold them. A
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
	// MaxChunkPieces keeps a chunk's DATA within MaxDataBytes whatever its runs turn out to be: no piece takes more than a run of its own.
	MaxChunkPieces = (MaxDataBytes - dataFixedBytes) / runBytes

	// Alignment is the distance, in bytes, of the places at which long pieces begin in a block.
	Alignment = 32
	// VectorBytes is the shortest piece that is aligned: the widest single load and store.
	VectorBytes = 16

	dataFixedBytes = 40 + 8 // message header; index count and reserved word
	runBytes       = 40
	indexBytes     = 4
)

// Errors of Begin. They carry the side and the lowest wrong descriptor index in their text, where a descriptor is to blame.
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
)

// Limits say how a request is cut into chunks.
type Limits struct {
	// ChunkBytes is the most bytes of one chunk's block, 1 to MaxChunkBytes: the chunk limit negotiated with the peer, or less where smaller chunks
	// pipeline better.
	ChunkBytes uint64
	// Chunks is how many chunks to aim at, at most MaxChunks; 0: by Target.
	Chunks int
	// Target is the bytes of a chunk to aim at: the number of chunks is the request's bytes divided by it, to the nearest. 0: as few chunks as ChunkBytes allows.
	Target uint64
	// Taper makes the first and the last chunk half as long as the others, if there are at least minTapered: copying the first before anything is on its way, and the last after all is, is the
	// part of the work that nothing else hides.
	Taper bool
}

// minTapered is the least number of chunks of which the first and the last are made shorter.
const minTapered = 4

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
	return dataFixedBytes + runBytes*len(c.Scatter.Runs) + indexBytes*len(c.Scatter.Index)
}

// Planner plans one request at a time: Begin, then Next until it answers false, then Overlap. Who hands chunks over while it plans calls NextGather for all of them first, so that the first gathers do not
// wait for what is needed later. It keeps its scratch from request to request, so that planning allocates nothing once it has seen a request as large: 16 bytes a piece, and some for each run. The zero value is
// ready. Not for concurrent use.
type Planner struct {
	pieces  pieceList
	cutter  cutter
	gather  sidePlan
	scatter sidePlan
	dst     []ports.Descriptor
	overlap overlapCheck
}

// sidePlan goes through a request's chunks for one side.
type sidePlan struct {
	next   int // the chunk that it plans next
	placer placer
	runs   runBuilder
}

func (s *sidePlan) begin(addrs []uint64) {
	s.next, s.placer = 0, placer{parts: s.placer.parts}
	s.runs.begin(addrs)
}

// plan makes the runs of the next chunk.
func (s *sidePlan) plan(strips []strip, cuts []cut, into *ports.Runs) (ok bool) {
	if s.next == len(cuts) {
		return false
	}
	first, end, used := s.placer.place(strips, cuts[s.next])
	if parts := s.placer.parts; s.runs.mutated("put a piece over the one before it") && len(parts) > 1 {
		parts[1].offset -= min(8, parts[0].length)
	}
	if s.runs.keep && s.runs.mutated("scatter a cut piece's rest over its beginning") {
		used = 0
	}
	s.runs.build(first, s.placer.parts, into)
	s.runs.addrs[end-1] += used // what is left of the last piece is the next chunk's first
	s.next++
	return true
}

// New makes a Planner.
func New() *Planner { return new(Planner) }

// Begin checks a request and finds its chunks without building runs, so that the sizes can be sent before anything else is known (WANT). It forgets the request
// before. dst must not change until Overlap has answered. After an error there are no chunks.
//
// Errors wrap ErrLimits, ErrOverflow, ErrPlaces, ErrTotals or ErrTooManyChunks.
func (p *Planner) Begin(src, dst []ports.Descriptor, lim Limits) (Summary, error) {
	p.cutter.reset()
	p.gather.next, p.scatter.next, p.dst = 0, 0, nil
	p.scatter.runs.spans = p.scatter.runs.spans[:0]
	if err := lim.validate(); err != nil {
		return Summary{}, err
	}
	total, ok := p.pieces.fillAlike(src, dst)
	if !ok {
		if total, ok = p.pieces.fillAny(src, dst); !ok {
			return Summary{}, whatIsWrong(src, dst)
		}
	}
	if err := p.cutter.cut(lim, total, p.pieces.strips); err != nil {
		p.cutter.reset()
		return Summary{}, err
	}
	p.gather.begin(p.pieces.src)
	p.scatter.begin(p.pieces.dst)
	p.scatter.runs.keep, p.dst = true, dst
	return Summary{Descriptors: max(len(src), len(dst)), Pieces: len(p.pieces.src), Bytes: total}, nil
}

// ChunkBytes is the length of each chunk's block, in order: what WANT carries. Each is at least 1, and what Next makes of that chunk has exactly that length.
// The slice is the Planner's and valid until the next Begin.
func (p *Planner) ChunkBytes() []uint32 { return p.cutter.sizes }

// Next plans the next chunk into c, whose slices it reuses; it answers false after the last one, with c unchanged.
func (p *Planner) Next(c *Chunk) (ok bool) { return p.NextGather(c) && p.NextScatter(c) }

// NextGather plans the next chunk into c but for its scatter runs, which are undefined until NextScatter; it answers false after the last one, with c unchanged.
func (p *Planner) NextGather(c *Chunk) (ok bool) {
	n := p.gather.next
	if !p.gather.plan(p.pieces.strips, p.cutter.cuts, &c.Gather) {
		return false
	}
	c.Bytes, c.Pieces = p.cutter.sizes[n], int(p.cutter.cuts[n].pieces)
	return true
}

// NextScatter plans the next chunk's scatter runs, the first chunk's to begin with, and touches nothing else of c: a gather may be reading the rest. It answers false after the last one.
func (p *Planner) NextScatter(c *Chunk) (ok bool) {
	return p.scatter.plan(p.pieces.strips, p.cutter.cuts, &c.Scatter)
}

// Overlap returns nil, or an error that wraps ErrOverlap and names the two first destination descriptors of the request that share bytes. It is asked once, when Next has answered
// false.
func (p *Planner) Overlap() error {
	dst := p.dst
	p.dst = nil // lets go of the caller's list
	if p.scatter.runs.mutated("skip the overlap check") || !p.overlap.any(p.scatter.runs.addrs, p.scatter.runs.spans) {
		return nil
	}
	return p.overlap.describe(dst)
}
