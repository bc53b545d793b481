package nixl

import (
	"log/slog"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// maxRunning is how many pieces of one transfer may run at once: enough to keep a link busy, few enough to look at in each turn.
const maxRunning = 64

// driver makes all calls of NIXL but those of registration. Whoever runs it holds Engine.owner.
type driver struct {
	agent   *agent // nil once closed
	library library
	logger  *slog.Logger
	limits  limits
	deliver func(from string, message []byte)

	links     map[ports.Identity]*link
	unsettled map[*link]struct{} // with something to be done about them
	queue     []*transfer        // with pieces to post, first come first served
	running   []piece            // posted, not known to have ended
	unproved  []piece            // failed, may still move; kept until the engine is closed (nixl.md, rule 2)
	part      [2]ports.Descriptor
	nextLook  time.Time     // when reconsider looks again
	patience  time.Duration // how long it waits then
}

// piece is a posted request of a transfer.
type piece struct {
	transfer *transfer
	request  request
	code     int // NIXL's last answer
}

// post posts the next piece of the first transfer that can be posted. It reports whether there was one, and whether that was the end of the transfer.
func (d *driver) post() (posted, ended bool) {
	for _, t := range d.queue {
		if !t.link.ready() || t.running >= maxRunning {
			continue
		}
		d.postPiece(t)
		if !t.unposted() {
			t.freeLists()
			d.dequeue(t)
		}
		return true, t.conclude()
	}
	return false, false
}

// admit queues a transfer to a peer that was connected when it was made.
func (d *driver) admit(id ports.Identity, t *transfer) (moved bool) {
	t.link = d.links[id]
	d.want(t.link)
	d.queue = append(d.queue, t)
	if t.link.failure != nil {
		return d.abandon(t.link, t.link.failure)
	}
	return false
}

// postPiece creates and posts the next piece of a transfer.
func (d *driver) postPiece(t *transfer) {
	c := t.cut(d.limits, &d.part)
	request, code := d.agent.create(t.op, t.link.name, c.local, c.remote)
	if code != codeSuccess {
		// Creating only checks and allocates: nothing was posted, whatever the code (nixl.md, 1).
		t.abandon(t.link.explain("create_xfer_req", code))
		return
	}
	code = d.agent.post(request)
	if code == codeNotFound && d.library.refusesBeforePosting {
		d.release(request)
		t.abandon(t.link.explain("post_xfer_req", code))
		return
	}
	t.next, t.offset = c.next, c.offset
	t.piecePosted()
	t.link.running++
	d.account(piece{t, request, code}, "post_xfer_req")
}

// account files a piece by what NIXL last answered to op. It reports whether it is still running.
func (d *driver) account(p piece, op string) (running bool) {
	switch p.code {
	case codeInProgress:
		d.running = append(d.running, p)
		return true
	case codeSuccess:
		d.release(p.request)
		p.transfer.pieceSucceeded()
	default:
		d.unproved = append(d.unproved, p)
		d.dequeue(p.transfer)
		p.transfer.pieceUnproved(p.transfer.link.explain(op, p.code))
	}
	p.transfer.link.running--
	return false
}

// dequeue takes a transfer of which nothing more will be posted out of the queue, if it is in it.
func (d *driver) dequeue(t *transfer) {
	if i := slices.Index(d.queue, t); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	}
}

// poll asks NIXL about every piece that runs. It reports whether one ended.
func (d *driver) poll() (moved bool) {
	pieces := d.running
	d.running = d.running[:0]
	for _, p := range pieces {
		p.code = d.agent.status(p.request)
		if !d.account(p, "get_xfer_status") {
			moved = true
			p.transfer.conclude()
		}
	}
	clear(pieces[len(d.running):])
	return moved
}

// reconsider asks again about failed pieces whose answer NIXL does not latch: "not found" is recomputed each time, and success may yet come (nixl.md, 2). It does so ever more
// rarely, since NIXL logs a line each time.
func (d *driver) reconsider() (moved bool) {
	if len(d.unproved) == 0 {
		d.patience = 0
		return false
	}
	now := time.Now()
	if now.Before(d.nextLook) {
		return false
	}
	d.patience = min(max(2*d.patience, 10*time.Millisecond), time.Minute)
	d.nextLook = now.Add(d.patience)
	kept := d.unproved[:0]
	for _, p := range d.unproved {
		if p.code == codeNotFound {
			p.code = d.agent.status(p.request)
		}
		if p.code == codeSuccess {
			d.release(p.request)
			p.transfer.pieceProved()
			moved = p.transfer.conclude() || moved
			continue
		}
		kept = append(kept, p)
	}
	clear(d.unproved[len(kept):])
	d.unproved = kept
	return moved
}

// release frees a request that ended or was not posted.
func (d *driver) release(r request) {
	if err := d.agent.release(r); err != nil {
		d.logger.Warn("a finished request could not be released", "error", err)
	}
}

// receive drives NIXL and takes messages in.
func (d *driver) receive() (moved bool) {
	return d.taken(d.agent.receive)
}

// rest drives NIXL every so often, so many times, or until messages arrived, which it takes in, or the bell is rung.
func (d *driver) rest(b *bell, every time.Duration, turns int) (moved bool) {
	return d.taken(func(take func(from string, message []byte)) error { return d.agent.rest(b, every, turns, take) })
}

func (d *driver) taken(receive func(take func(from string, message []byte)) error) (moved bool) {
	err := receive(func(from string, message []byte) {
		moved = true
		d.deliver(from, message)
	})
	if err != nil {
		d.logger.Warn("receiving notifications failed", "error", err)
	}
	return moved
}

// idle reports whether nothing may change soon but by messages. Requests that failed are kept for ever, and looked at rarely.
func (d *driver) idle() bool { return len(d.queue)+len(d.running)+len(d.unsettled) == 0 }

// abandon gives up what is not posted yet of the transfers over a link.
func (d *driver) abandon(l *link, reason error) (moved bool) {
	kept := d.queue[:0]
	for _, t := range d.queue {
		if t.link != l {
			kept = append(kept, t)
			continue
		}
		t.abandon(reason)
		moved = t.conclude() || moved
	}
	clear(d.queue[len(kept):])
	d.queue = kept
	return moved
}

// close ends everything. Requests that may run are left to the agent's own end, after which they must not be touched (nixl.md, 3).
func (d *driver) close() error {
	for _, l := range d.links {
		d.abandon(l, ports.ErrClosed)
	}
	d.poll()
	for _, p := range d.running {
		p.transfer.pieceUnproved(ports.ErrClosed)
		p.transfer.conclude()
	}
	left, gone := 0, 0
	for _, p := range slices.Concat(d.running, d.unproved) {
		if l := p.transfer.link; l.forget && l.offer == nil || d.links[l.identity] != l {
			gone++
		} else {
			left++
		}
	}
	if left > 0 {
		d.logger.Warn("closing with transfers that may still run", "requests", left)
	}
	if gone > 0 { // such as a fenced one's
		d.logger.Info("closing with transfers that nothing ended; their peers are gone", "requests", gone)
	}
	err := d.agent.close()
	for _, l := range d.links {
		freePeerName(l.name)
	}
	d.agent, d.links, d.unsettled, d.queue, d.running, d.unproved = nil, nil, nil, nil, nil, nil
	return err
}
