package main

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/core/transport"
)

// evidence holds what both agents' counters said last. All transfers of a burst write the same bytes, so the check of the destination can't tell whether each of them
// did its work: the counters of both sides do.
type evidence struct {
	parties []party
	last    [2]map[string]uint64
}

func newEvidence(parties []party) (*evidence, error) {
	e := &evidence{parties: parties}
	_, err := e.since()
	return e, err
}

// since is by how much each party's counters rose since it was called last.
func (e *evidence) since() (rose [2]counts, err error) {
	for i, p := range e.parties {
		r, err := p.do(call{Op: "stats"})
		if err != nil {
			return rose, err
		}
		if r.Stats == nil {
			return rose, errors.New("a worker gave no statistics")
		}
		rose[i] = counts{}
		for name, n := range r.Stats.Counters {
			rose[i][name] = n - e.last[i][name]
		}
		e.last[i] = r.Stats.Counters
	}
	return rose, nil
}

// counts are differences of counters.
type counts map[string]uint64

func (c counts) of(k transport.Counter) uint64 { return c[k.String()] }

// of is how many transfers of the leg that just ended bounced, or what is wrong with its counters.
func (e *evidence) of(from int, l leg, bytes uint64) (bounced int, err error) {
	rose, err := e.since()
	if err != nil {
		return 0, err
	}
	return judge(rose[from], rose[1-from], l, bytes)
}

// judge checks that each transfer of a leg moved all its bytes over the path that was asked for, and that the receiver scattered every chunk that was written.
func judge(sender, receiver counts, l leg, bytes uint64) (bounced int, err error) {
	bounces, directs := sender.of(transport.BounceSucceeded), sender.of(transport.DirectSucceeded)
	written, scattered := sender.of(transport.WritesPosted), receiver.of(transport.ScattersRun)
	switch {
	case bounces+directs != uint64(l.count), (l.path == pathBounce || l.path == pathPrepared) && directs > 0, l.path == pathDirect && bounces > 0:
		return 0, fmt.Errorf("the sender's agent counts %d bounces and %d direct transfers that succeeded, where there were %d %s ones", bounces, directs, l.count, l.path)
	case sender.of(transport.BouncedBytes) != bounces*bytes, sender.of(transport.DirectBytes) != directs*bytes:
		return 0, fmt.Errorf("the sender's agent counts %d bounced bytes and %d direct ones, where each transfer has %d", sender.of(transport.BouncedBytes), sender.of(transport.DirectBytes), bytes)
	case scattered != written, bounces > 0 && scattered%bounces != 0, scattered < bounces:
		return 0, fmt.Errorf("the receiver's agent counts %d scattered chunks, where the sender's wrote %d in %d bounces", scattered, written, bounces)
	}
	return int(bounces), nil
}
