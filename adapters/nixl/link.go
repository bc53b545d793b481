package nixl

import (
	"fmt"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// link is what the driver knows of one peer: what NIXL has loaded of it, and what is to be done about that.
//
// NIXL's view of a peer is changed only in settle. Taking metadata away hides how running transfers end (nixl.md, 2), so forgetting and replacing wait for them; adding
// does not.
type link struct {
	identity ports.Identity
	name     peerName
	note     string // what to add to errors, known when the link was made

	loaded     bool
	regionless bool         // the loaded copy is of the connection alone
	removal    uint64       // of the loaded copy; a copy with the same one only adds to it
	running    int          // pieces posted to it that are not known to have ended
	failure    error        // why nothing is loaded, if loading failed
	failed     *atomic.Bool // tells the reactor of that

	wanted  bool   // something was to go to the peer
	offer   *offer // to be loaded, once it is wanted
	forget  bool   // to be forgotten, unless an offer comes first
	waiting [][]byte
}

// ready reports whether pieces can be posted.
func (l *link) ready() bool { return l.loaded && l.offer == nil && !l.forget }

// mustWait reports whether what is to be done takes something away that running pieces need.
func (l *link) mustWait() bool {
	return l.loaded && (l.forget || !l.regionless && l.offer.removal != l.removal)
}

// explain is the error of a failed call about this peer.
func (l *link) explain(op string, code int) error {
	return &Error{Op: op, Code: code, Text: fmt.Sprintf("peer %s%s", l.identity, l.note)}
}

// connect has an offer loaded, now if the peer's metadata is loaded already, else when it is wanted.
func (d *driver) connect(id ports.Identity, o *offer, note string, failed *atomic.Bool) {
	l := d.links[id]
	if l == nil {
		l = &link{identity: id, name: newPeerName(id)}
		d.links[id] = l
	}
	l.offer, l.note, l.failure, l.failed = o, note, nil, failed
	if l.loaded || l.wanted {
		d.unsettled[l] = struct{}{}
	}
}

// want has a link loaded, if it is not: something is to go to the peer. Before that NIXL is not told of it, since UCX then connects to it, and a peer that dies while UCX does may end this process (nixl.md, rule 11). One that
// only sends to us needs no connection of ours.
func (d *driver) want(l *link) {
	if !l.wanted && l.offer != nil {
		l.wanted = true
		d.unsettled[l] = struct{}{}
	}
}

// disconnect has a link forgotten, and gives up what is not posted yet: that is proof for its callers.
func (d *driver) disconnect(id ports.Identity) (moved bool) {
	l := d.links[id]
	if l == nil {
		return false
	}
	l.offer, l.forget, l.waiting = nil, true, nil
	d.unsettled[l] = struct{}{}
	return d.abandon(l, ports.ErrUnknownPeer)
}

// canSettle reports whether settle has something to do now.
func (d *driver) canSettle() bool {
	for l := range d.unsettled {
		if l.running == 0 || !l.mustWait() {
			return true
		}
	}
	return false
}

// settle does what is to be done about the links, as far as it can be done now. It may block for some 10 ms for each new peer.
func (d *driver) settle() (moved bool) {
	for l := range d.unsettled {
		if l.running > 0 && l.mustWait() {
			continue
		}
		moved = d.settleLink(l) || moved
		delete(d.unsettled, l)
	}
	return moved
}

func (d *driver) settleLink(l *link) (moved bool) {
	if l.mustWait() {
		if err := d.agent.forget(l.name); err != nil {
			d.logger.Warn("a peer could not be forgotten", "peer", l.identity, "error", err)
		}
		l.loaded = false
	}
	l.forget = false
	if l.offer == nil {
		delete(d.links, l.identity)
		freePeerName(l.name)
		return false
	}
	o := l.offer
	l.offer = nil
	if err := d.load(l, o); err != nil {
		l.loaded, l.waiting = false, nil
		d.logger.Warn("a peer's metadata could not be loaded", "peer", l.identity, "error", err)
		l.failure = fmt.Errorf("%w: %w", ports.ErrUnknownPeer, err)
		l.failed.Store(true)
		d.abandon(l, l.failure)
		return true
	}
	l.loaded, l.regionless, l.removal = true, len(o.ranges) == 0, o.removal
	for _, message := range l.waiting {
		d.send(l, message)
	}
	l.waiting = nil
	return true
}

// load hands a peer's blob to NIXL.
func (d *driver) load(l *link, o *offer) error {
	name, err := d.agent.connect(o.blob)
	if err != nil {
		return err
	}
	if name != string(l.identity) {
		other := newPeerName(ports.Identity(name))
		defer freePeerName(other)
		if err := d.agent.forget(other); err != nil {
			d.logger.Warn("a peer could not be forgotten", "peer", name, "error", err)
		}
		return fmt.Errorf("%w: it is %s's inside", ports.ErrBadMetadata, name)
	}
	return nil
}

// notify sends a message, or keeps it until the peer's metadata is loaded.
func (d *driver) notify(id ports.Identity, message []byte) {
	l := d.links[id]
	switch {
	case l == nil || l.forget && l.offer == nil:
		d.logger.Debug("a notification was lost: the peer is gone", "peer", id)
	case l.loaded && !l.forget:
		d.send(l, message)
	case l.offer != nil:
		l.waiting = append(l.waiting, message)
		d.want(l)
	default:
		d.logger.Debug("a notification was lost: the peer's metadata could not be loaded", "peer", id)
	}
}

func (d *driver) send(l *link, message []byte) {
	if code := d.agent.notify(l.name, message); code != codeSuccess {
		d.logger.Debug("a notification was lost", "error", l.explain("gen_notif", code))
	}
}
