package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// drivenEngine counts how often it is driven.
type drivenEngine struct {
	ports.TransferEngine
	driven int
	moves  bool
}

func (e *drivenEngine) Progress() bool {
	e.driven++
	return e.moves
}

// A channel over notifications has the engine driven in every turn for a while after each frame, whatever the transport asks for. Others do not.
func TestFramesHaveTheEngineDriven(t *testing.T) {
	const now = ports.Instant(time.Hour)
	for _, counter := range []transport.Counter{transport.FramesSent, transport.FramesReceived} {
		engine := &drivenEngine{}
		a := &Agent{opt: Options{Engine: engine}, transport: transport.New(transport.Options{})}
		frame := func() { a.transport.Counters().Add(counter, 1) }
		turn := func(now ports.Instant) (work bool, next ports.Instant) { return a.drive(now, false, ports.Never) }

		frame()
		_, next := turn(now)
		require.Equal(t, ports.Never, next, "frames go over another channel")
		require.Zero(t, engine.driven)

		a.driver.notify = true
		_, next = turn(now)
		require.Equal(t, now.Add(frameWait), next)
		require.Equal(t, 1, engine.driven)
		_, next = a.drive(now, false, now+1)
		require.Equal(t, now+1, next, "the transport wants to be called before")
		engine.moves = true
		work, _ := turn(now.Add(frameSpin - 1))
		require.True(t, work)
		engine.moves = false
		work, next = turn(now.Add(frameSpin))
		require.False(t, work)
		require.Equal(t, ports.Never, next)
		require.Equal(t, 3, engine.driven)

		frame()
		_, next = turn(now.Add(time.Minute))
		require.Equal(t, now.Add(time.Minute+frameWait), next)
		require.Equal(t, 4, engine.driven)
	}
}
