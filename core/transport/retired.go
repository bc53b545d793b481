package transport

import "github.com/kvbounce/kvbounce/ports"

// maxRetired bounds how many incarnations without an entry are remembered. Frames and descriptions of one come seconds after it, not thousands of incarnations later.
const maxRetired = 4096

// retiredPeer is what stays of an incarnation whose entry is gone.
type retiredPeer struct {
	superseded bool   // AddPeer refuses it, and its frames make no entry
	fenced     bool   // its frames are counted apart
	lastID     uint64 // request numbers are never reused, though the peer be removed and added again
	// endpoint is the way back to a peer that requests were sent to: a WANT that comes to it after all makes a flow there that only our DRAIN ends.
	endpoint string
}

// maxRetiredEndpoint is the longest way back that is remembered, in bytes.
const maxRetiredEndpoint = 4096

// retire is what is remembered of an entry.
func (p *peer) retire() retiredPeer {
	x := retiredPeer{superseded: p.superseded, fenced: p.fenced, lastID: p.lastID}
	if p.lastID > 0 && !p.superseded && len(p.endpoint) <= maxRetiredEndpoint {
		x.endpoint = string(p.endpoint)
	}
	return x
}

// retired remembers incarnations whose entry is gone, as far as there is something to remember, oldest forgotten first.
type retired struct {
	set   map[ports.Identity]retiredPeer
	ring  []ports.Identity
	next  int
	floor uint64 // no incarnation that was forgotten here drew a higher request number
}

func (r *retired) add(id ports.Identity, x retiredPeer) {
	if x == (retiredPeer{}) {
		return
	}
	if r.set == nil {
		r.set = map[ports.Identity]retiredPeer{}
	}
	_, known := r.set[id]
	r.set[id] = x
	if known {
		return
	}
	if len(r.ring) < maxRetired {
		r.ring = append(r.ring, id)
		return
	}
	r.floor = max(r.floor, r.set[r.ring[r.next]].lastID)
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % maxRetired
}

// superseded reports whether another incarnation took this one's place.
func (r *retired) superseded(id ports.Identity) bool { return r.set[id].superseded }

// lastID is a number that is not below any that was drawn towards this incarnation.
func (r *retired) lastID(id ports.Identity) uint64 {
	if x, ok := r.set[id]; ok {
		return x.lastID
	}
	return r.floor
}
