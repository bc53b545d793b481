package transport

// maxDrained bounds, per peer, the drained requests that are remembered. A WANT comes seconds after its request's DRAIN, not a thousand requests later.
const maxDrained = 1024

// drainedRequests remembers requests of a peer that were drained and of which nothing else is kept, until `oldest` passes them. A WANT that its DRAIN overtook must not make a flow: the sender sends none for a
// failed request, so nobody would ever end that flow, and it would hold regions for a lease.
type drainedRequests struct {
	set  map[uint64]struct{}
	ring []uint64 // in the order of their DRAINs
	next int
}

func (d *drainedRequests) has(id uint64) bool {
	_, ok := d.set[id]
	return ok
}

func (d *drainedRequests) add(id uint64) {
	if d.has(id) {
		return
	}
	if d.set == nil {
		d.set = map[uint64]struct{}{}
	}
	d.set[id] = struct{}{}
	if len(d.ring) < maxDrained {
		d.ring = append(d.ring, id)
		return
	}
	delete(d.set, d.ring[d.next])
	d.ring[d.next] = id
	d.next = (d.next + 1) % maxDrained
}

// dropBelow forgets what is below oldest: a WANT of it is dropped anyway.
func (d *drainedRequests) dropBelow(oldest uint64) {
	if len(d.ring) == 0 {
		return
	}
	kept := make([]uint64, 0, len(d.ring))
	for i := range d.ring {
		id := d.ring[(d.next+i)%len(d.ring)]
		if id >= oldest {
			kept = append(kept, id)
		} else {
			delete(d.set, id)
		}
	}
	d.ring, d.next = kept, 0
	if len(kept) == 0 {
		*d = drainedRequests{}
	}
}
