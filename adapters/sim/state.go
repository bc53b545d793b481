package sim

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// What follows is for exploration: to know that two moments of two runs of one driver are the same, so that what follows from one need not be
// looked at again.
//
// A moment is the same as another when everything that can make a difference later is. Of the World that is what is queued, what arrived and was not taken, what
// transfers and copies will answer, memory, the random stream, and the time. Of an agent it is whatever it holds, which can't be looked into. But an agent is a function of
// what it was told: if the answers of its ports were the same, one by one, and so were its driver's calls, then so is the agent. So the World keeps a hash of all that each agent was told. That is sound: it never
// takes two different moments for the same (but for a collision of 128 bits). It may take two equal ones for different.

// history is a hash of all that one agent was told, in order.
type history struct {
	sum  hash.Hash
	last [16]byte
}

// Tell notes that an agent's driver told it something. Its ports do so by themselves. Only with Config.Observe.
func (w *World) Tell(agent ports.Identity, what []byte) { w.told(agent, 'd', what) }

// told adds to an agent's history.
func (w *World) told(agent ports.Identity, kind byte, what []byte) {
	if !w.cfg.Observe {
		return
	}
	h := w.histories[agent]
	if h == nil {
		h = &history{sum: fnv.New128a()}
		w.histories[agent] = h
	}
	var head [24]byte
	copy(head[:], h.last[:])
	head[16] = kind
	binary.LittleEndian.PutUint32(head[17:], uint32(len(what)))
	h.sum.Reset()
	h.sum.Write(head[:])
	h.sum.Write(what)
	h.sum.Sum(h.last[:0])
}

func (w *World) toldByte(agent ports.Identity, kind, what byte) {
	if w.cfg.Observe {
		w.told(agent, kind, []byte{what})
	}
}

// live notes a transfer or copy whose answers matter.
func (w *World) live(x describer) {
	if w.cfg.Observe {
		w.answering = append(w.answering, x)
	}
}

// describer can write down all that it will do and answer.
type describer interface {
	describe(dst []byte) []byte
	forgotten() bool // nobody will ask it any more
}

// AppendState appends what decides all that can happen from now on. Only with Config.Observe, and only between events or from within the Chooser.
func (w *World) AppendState(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(w.now))
	dst = binary.LittleEndian.AppendUint64(dst, w.random.state)
	var lines [][]byte
	for _, list := range [][]entry{w.queue.heap, w.queue.tied} {
		for _, e := range list {
			if e.do == nil || e.stale() {
				continue
			}
			line := binary.LittleEndian.AppendUint64([]byte{'q'}, uint64(e.at))
			lines = append(lines, e.do.(interface{ describe([]byte) []byte }).describe(line))
		}
	}
	w.answering = slices.DeleteFunc(w.answering, describer.forgotten)
	for _, x := range w.answering {
		lines = append(lines, x.describe([]byte{'a'}))
	}
	slices.SortFunc(lines, slices.Compare)
	for _, line := range lines {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(line)))
		dst = append(dst, line...)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(w.boxes)) {
		dst = append(append(dst, 'b'), endpoint...)
		for _, f := range w.boxes[endpoint].waiting {
			dst = f.describe(append(dst, 'f'))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.engines)) {
		e := w.engines[id]
		dst = append(append(dst, 'e', yes(e.closed), yes(e.moved), yes(e.resting)), id...)
		for _, n := range e.inbox {
			dst = n.describe(append(dst, 'n'))
		}
		for _, t := range e.socket {
			dst = t.describe(append(dst, 'k'))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.histories)) {
		dst = append(append(append(dst, 'h'), id...), w.histories[id].last[:]...)
	}
	return w.memory.(*spaces).appendTo(dst)
}

func yes(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendTo appends a hash of each allocation.
func (s *spaces) appendTo(dst []byte) []byte {
	h := fnv.New128a()
	for _, a := range s.allocations {
		h.Write(a.bytes)
	}
	return h.Sum(dst)
}

func (r *restTurn) describe(dst []byte) []byte  { return append(append(dst, 'r'), r.id...) }
func (s *scheduled) describe(dst []byte) []byte { return append(append(dst, 's'), s.name...) }
func (a *Alarm) describe(dst []byte) []byte     { return append(append(dst, 'l'), a.name...) }

func (f *frame) describe(dst []byte) []byte {
	dst = append(append(dst, 'f', yes(f.link.cut)), f.link.from.id...)
	dst = append(append(dst, f.link.peer...), f.link.box.endpoint...)
	return append(dst, f.bytes...)
}

func (n *notification) describe(dst []byte) []byte {
	dst = append(append(append(dst, 'n'), n.from...), n.to...)
	return append(dst, n.bytes...)
}

func (t *transfer) describe(dst []byte) []byte {
	dst = append(append(dst, 't', yes(t.read), yes(t.orphan), yes(t.released), byte(t.status), byte(t.atEnd)), t.owner.id...)
	dst = append(dst, t.peer...)
	for _, x := range []uint64{uint64(t.index), t.offset, t.left} {
		dst = binary.LittleEndian.AppendUint64(dst, x)
	}
	for _, p := range t.pieces {
		for _, x := range []uint64{p.local.Addr, p.remote.Addr, p.local.Bytes} {
			dst = binary.LittleEndian.AppendUint64(dst, x)
		}
	}
	return dst
}

func (t *transfer) forgotten() bool { return t.released }

func (v *verdict) describe(dst []byte) []byte {
	return v.transfer.describe(append(dst, 'v', byte(v.status)))
}

func (j *copying) describe(dst []byte) []byte {
	dst = append(append(dst, 'c', yes(j.scatter), byte(j.status), byte(j.atEnd)), j.compute.cfg.Agent...)
	for _, x := range []uint64{j.block, j.done, j.bytes} {
		dst = binary.LittleEndian.AppendUint64(dst, x)
	}
	for _, r := range j.runs.Runs {
		for _, x := range []uint64{r.Offset, r.Addr, uint64(r.Stride), uint64(r.Piece), uint64(r.Pieces), uint64(r.Step), uint64(r.Table)} {
			dst = binary.LittleEndian.AppendUint64(dst, x)
		}
	}
	return dst
}

func (j *copying) forgotten() bool { return j.seen }

func (f *copyFails) describe(dst []byte) []byte { return (*copying)(f).describe(append(dst, 'x')) }
