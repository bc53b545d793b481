package wiring

import (
	"github.com/kvbounce/kvbounce/adapters/nixlnotify"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// openNotify puts the control channel on the engine's notifications. The agent then uses the engine through the one that shares it with the channel.
func openNotify(p Params, o *agent.Options) error {
	below, ok := o.Engine.(nixlnotify.Underlying)
	if !ok {
		below = unregistered{o.Engine}
	}
	engine, channel, err := nixlnotify.New(below, nixlnotify.Config{MaxFrame: int(p.Config.MaxFrameSize), Logger: p.Log})
	if err != nil {
		return err
	}
	o.Engine, o.Control = engine, channel
	return nil
}

// unregistered is an in-process engine that has no metadata of its connection alone. Its channel is opened before anything is registered, and asks once: what there is
// then holds no registrations.
type unregistered struct{ ports.TransferEngine }

// ConnectionMetadata implements nixlnotify.Underlying.
func (e unregistered) ConnectionMetadata() ([]byte, error) { return e.Metadata() }
