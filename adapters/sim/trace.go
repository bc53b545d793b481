package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/kvbounce/kvbounce/ports"
)

// EventKind is a kind of Event.
type EventKind uint8

// The kinds of events. For each: what Detail is, and which other fields are set.
const (
	FrameSent          EventKind = iota // FrameFate; Peer, ID, Bytes, Data
	FrameNotTaken                       // ports.SendResult; Peer, Bytes, Data: the peer is not connected, or its queue is full
	FrameDelivered                      // 0; Peer is the sender, ID, Bytes
	FrameDropped                        // 0; as FrameDelivered: nobody waits at the endpoint any more, the sender gave up, or it is too large
	NotifySent                          // as FrameSent
	NotifyDelivered                     // as FrameDelivered
	NotifyDropped                       // as FrameDropped
	MemoryRegistered                    // 0; Addr, Bytes, once for each range
	MemoryDeregistered                  // 0; Addr, Bytes, once for each range
	TransferRange                       // 1 for a read; Peer, ID, From, Addr, Bytes: a range that it may copy, once for each before TransferPosted
	TransferPosted                      // TransferFate; Peer, ID, Bytes
	TransferRejected                    // ports.TransferStatus; Peer, ID: it could not be posted
	TransferMoves                       // 1 for a read; Peer, ID, From, Addr, Bytes: these bytes are copied now, once for each contiguous part
	TransferTold                        // ports.TransferStatus; Peer, ID: what Status answers from now on
	TransferReleased                    // 0; Peer, ID
	GatherLaunched                      // CopyFate; ID, Addr (of the block), Bytes, Runs, Index
	ScatterLaunched                     // as GatherLaunched
	CopyRuns                            // 1 for a scatter; ID, From (bytes copied before), Addr, Bytes, Runs, Index: these bytes are copied now
	CopyTold                            // ports.CopyStatus; ID: what Status answers from now on
	PortClosed                          // 0
	Called                              // 0; Data: the name that Schedule was given
	AccessRevoked                       // 0; Peer: no transfer between the two that was posted before moves bytes any more
	eventKinds
)

// String names the kind as logs print it.
func (k EventKind) String() string {
	return name(k, "frame-sent", "frame-not-taken", "frame-delivered", "frame-dropped", "notify-sent", "notify-delivered", "notify-dropped", "registered", "deregistered",
		"transfer-range", "transfer-posted", "transfer-rejected", "transfer-moves", "transfer-told", "transfer-released", "gather-launched", "scatter-launched", "copy-runs", "copy-told", "closed", "called", "access-revoked")
}

// Event is something that happened in a World.
type Event struct {
	At     ports.Instant
	Kind   EventKind
	Detail uint8
	Agent  ports.Identity // whose port it happened to
	Peer   ports.Identity
	ID     uint64 // the number, in this World, of the frame, notification, transfer or copy
	From   uint64 // address that is read
	Addr   uint64 // address that is written, or that it is about
	Bytes  uint64
	Data   []byte // only until Trace returns
	Runs   []ports.Run
	Index  []uint32 // of Runs
}

// String is one line for a log.
func (e Event) String() string {
	line := fmt.Sprintf("%12d %-18s %s", int64(e.At), e.Kind, e.Agent)
	if e.Peer != "" {
		line += fmt.Sprintf(" peer=%s", e.Peer)
	}
	if e.Kind == Called {
		return line + string(e.Data)
	}
	for _, field := range []struct {
		name  string
		value uint64
	}{{"id", e.ID}, {"detail", uint64(e.Detail)}, {"bytes", e.Bytes}} {
		if field.value != 0 {
			line += fmt.Sprintf(" %s=%d", field.name, field.value)
		}
	}
	if e.From != 0 {
		line += fmt.Sprintf(" from=%#x", e.From)
	}
	if e.Addr != 0 {
		line += fmt.Sprintf(" addr=%#x", e.Addr)
	}
	return line
}

// trace tells of an event that happens now. w.mu is held.
func (w *World) trace(e Event) {
	if w.cfg.Trace != nil {
		e.At = w.now
		w.cfg.Trace(e)
	}
}

// Digest is a checksum of a sequence of events: equal for equal sequences, on every machine.
type Digest struct {
	hash   hash.Hash
	record []byte
}

// NewDigest is the digest of no events.
func NewDigest() *Digest { return &Digest{hash: sha256.New()} }

// Add takes the next event in.
func (d *Digest) Add(e Event) {
	r := append(d.record[:0], byte(e.Kind), e.Detail)
	for _, field := range [...]uint64{uint64(e.At), e.ID, e.From, e.Addr, e.Bytes, uint64(len(e.Runs))} {
		r = binary.LittleEndian.AppendUint64(r, field)
	}
	for _, text := range [...]string{string(e.Agent), string(e.Peer)} {
		r = append(binary.LittleEndian.AppendUint32(r, uint32(len(text))), text...)
	}
	for _, run := range e.Runs {
		for _, field := range [...]uint64{run.Offset, run.Addr, uint64(run.Stride), uint64(run.Piece), uint64(run.Pieces), uint64(run.Step), uint64(run.Table)} {
			r = binary.LittleEndian.AppendUint64(r, field)
		}
	}
	for _, i := range e.Index {
		r = binary.LittleEndian.AppendUint32(r, i)
	}
	r = binary.LittleEndian.AppendUint32(r, uint32(len(e.Data)))
	d.record = append(r, e.Data...)
	d.hash.Write(d.record)
}

// Sum is the digest of the events so far.
func (d *Digest) Sum() [sha256.Size]byte { return [sha256.Size]byte(d.hash.Sum(nil)) }

// name is the k-th name.
func name[K ~uint8](k K, names ...string) string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}
