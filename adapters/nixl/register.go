package nixl

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// registration is memory that NIXL knows.
type registration struct {
	engine *Engine
	lists  [][]ports.Descriptor // what NIXL got: one list of each kind, without empty ranges
}

var errNotOurs = errors.New("nixl: the registration is not this engine's, or was taken back before")

// Register implements ports.TransferEngine.
func (e *Engine) Register(ranges []ports.Descriptor) (ports.Registration, error) {
	r := &registration{engine: e}
	byKind := make([][]ports.Descriptor, ports.Device+1)
	for i, d := range ranges {
		if d.Place.Kind > ports.Device {
			return nil, fmt.Errorf("nixl: register: range %d is of %v, want dram or vram", i, d.Place.Kind)
		}
		if _, ok := d.End(); !ok {
			return nil, fmt.Errorf("nixl: register: range %d, %d bytes at %#x, does not fit 64 bits", i, d.Bytes, d.Addr)
		}
		if d.Bytes > 0 {
			byKind[d.Place.Kind] = append(byKind[d.Place.Kind], d)
		}
	}
	for _, list := range byKind {
		if len(list) > 0 {
			r.lists = append(r.lists, list)
		}
	}
	if err := e.call(func() error { return e.register(r) }); err != nil {
		return nil, err
	}
	return r, nil
}

// register tells NIXL, all or nothing. The caller holds owner.
func (e *Engine) register(r *registration) error {
	for i, list := range r.lists {
		if err := e.driver.agent.register(list); err != nil {
			for _, done := range r.lists[:i] {
				if undo := e.driver.agent.deregister(done); undo != nil {
					e.logger.Warn("a registration could not be undone", "error", undo)
				}
			}
			return err
		}
	}
	e.registrations[r] = struct{}{}
	e.revision++
	e.publish()
	return nil
}

// Deregister implements ports.TransferEngine.
func (e *Engine) Deregister(taken ports.Registration) error {
	r, ok := taken.(*registration)
	if !ok || r.engine != e {
		return errNotOurs
	}
	return e.call(func() error { return e.deregister(r) })
}

// deregister takes a registration from NIXL. The caller holds owner.
func (e *Engine) deregister(r *registration) error {
	if _, registered := e.registrations[r]; !registered {
		return errNotOurs
	}
	delete(e.registrations, r)
	e.revision++
	e.removal = e.revision
	e.publish()
	var errs []error
	for _, list := range r.lists {
		errs = append(errs, e.driver.agent.deregister(list))
	}
	return errors.Join(errs...)
}

// publish lets posts see what is registered. The caller holds owner.
func (e *Engine) publish() { e.registered.Store(newCoverage(e.ranges())) }

// ranges are all that is registered, in no order. The caller holds owner.
func (e *Engine) ranges() []ports.Descriptor {
	var all []ports.Descriptor
	for r := range e.registrations {
		for _, list := range r.lists {
			all = append(all, list...)
		}
	}
	return all
}

// Metadata implements ports.TransferEngine.
func (e *Engine) Metadata() ([]byte, error) { return e.metadata(false) }

// ConnectionMetadata is Metadata without any registration: enough to send notifications to this agent, small, and the same for the engine's whole life. A peer that has
// Metadata already ignores it.
func (e *Engine) ConnectionMetadata() ([]byte, error) { return e.metadata(true) }

func (e *Engine) metadata(connectionOnly bool) ([]byte, error) {
	o := &offer{
		identity:      e.identity,
		version:       e.library.info.Version,
		sharedControl: e.library.sharedControl,
		machine:       e.machine,
		uid:           e.uid,
	}
	err := e.call(func() error {
		if !connectionOnly {
			o.revision, o.removal, o.ranges = e.revision, e.removal, e.registered.Load().ranges
		}
		var err error
		o.blob, err = e.driver.agent.metadata(connectionOnly)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o.marshal(), nil
}
