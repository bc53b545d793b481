package sim

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// An alarm rings once for each Set that no other Set replaced, in order with all other events.
func TestAlarm(t *testing.T) {
	w := NewVirtual(Config{})
	var rang []ports.Instant
	a := w.NewAlarm("a", func() { rang = append(rang, w.Now()) })
	require.Equal(t, ports.Never, a.At())
	a.Set(30)
	a.Set(10)
	a.Set(20)
	require.Equal(t, ports.Instant(20), a.At())
	require.Equal(t, ports.Instant(20), w.NextAt(), "replaced entries are not events")
	w.AdvanceTo(40)
	require.Equal(t, []ports.Instant{20}, rang)
	require.Equal(t, ports.Never, a.At())
	a.Set(5)
	require.Equal(t, ports.Instant(40), a.At(), "in the past: now")
	a.Set(ports.Never)
	require.False(t, w.Step())
	a.Set(50)
	a.Set(50)
	require.True(t, w.Step())
	require.False(t, w.Step())
	require.Equal(t, []ports.Instant{20, 50}, rang)
	require.Panics(t, func() { NewRealTime(newRealClock()).NewAlarm("x", nil) })
}

// moment makes an observed world in which two agents each send a frame to a third, in an order, and returns its state.
func moment(t *testing.T, first, second ports.Identity, deliver, take bool) string {
	w := NewVirtual(Config{Observe: true})
	to, err := NewControl(w, ControlConfig{Identity: "c#0000000000000000", Endpoint: "memory:c"})
	require.NoError(t, err)
	channels := map[ports.Identity]*Control{}
	for _, id := range []ports.Identity{idA, idB} {
		channels[id], err = NewControl(w, ControlConfig{Identity: id, Endpoint: "memory:" + string(id)})
		require.NoError(t, err)
		require.NoError(t, channels[id].Connect(to.id, to.Endpoint()))
	}
	for _, id := range []ports.Identity{first, second} {
		require.Equal(t, ports.Accepted, channels[id].Send(to.id, []byte(id)))
	}
	if deliver {
		w.AdvanceTo(0)
	}
	if take {
		_, _, ok := to.Recv(nil)
		require.True(t, ok)
	}
	return string(w.AppendState(nil))
}

// Moments are equal where the order of what happened can't matter any more, and differ where it can.
func TestStateTellsMomentsApart(t *testing.T) {
	require.Equal(t, moment(t, idA, idB, false, false), moment(t, idB, idA, false, false), "who sent first does not matter while both frames are under way")
	require.NotEqual(t, moment(t, idA, idB, true, false), moment(t, idB, idA, true, false), "they arrived in another order")
	require.NotEqual(t, moment(t, idA, idB, true, false), moment(t, idA, idB, false, false))
	require.NotEqual(t, moment(t, idA, idB, true, true), moment(t, idA, idB, true, false))

	w := NewVirtual(Config{Observe: true})
	addr, err := w.Allocate(8, ports.Place{})
	require.NoError(t, err)
	empty := string(w.AppendState(nil))
	bytes, err := w.View(addr, 8)
	require.NoError(t, err)
	bytes[3] = 1
	require.NotEqual(t, empty, string(w.AppendState(nil)), "memory")
	known := string(w.AppendState(nil))
	w.Tell(idA, []byte("x"))
	require.NotEqual(t, known, string(w.AppendState(nil)), "what an agent was told")
}

// A frame that is not taken is told of, with the reason.
func TestFramesThatAreNotTakenAreTraced(t *testing.T) {
	var told []Event
	w := NewVirtual(Config{Trace: func(e Event) {
		if e.Kind == FrameNotTaken {
			told = append(told, e)
		}
	}})
	a, err := NewControl(w, ControlConfig{Identity: idA, QueueFrames: 1})
	require.NoError(t, err)
	b, err := NewControl(w, ControlConfig{Identity: idB})
	require.NoError(t, err)
	require.Equal(t, ports.NoPeer, a.Send(idB, []byte("x")))
	require.NoError(t, a.Connect(idB, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(idB, []byte("x")))
	require.Equal(t, ports.Full, a.Send(idB, []byte("x")))
	require.Len(t, told, 2)
	require.Equal(t, []uint8{uint8(ports.NoPeer), uint8(ports.Full)}, []uint8{told[0].Detail, told[1].Detail})
}

// An alarm that is put off again and again leaves nothing behind, and all that is queued comes in its order.
func TestAlarmsThatArePutOffLeaveNothing(t *testing.T) {
	w := NewVirtual(Config{})
	var rang []int
	for i := range 300 {
		w.Schedule(ports.Instant(1000-i), "", func() { rang = append(rang, 1000-i) })
	}
	timeout := w.NewAlarm("timeout", func() { rang = append(rang, 5000) })
	for i := range 10_000 {
		timeout.Set(ports.Instant(15_000 - i))
	}
	timeout.Set(5000)
	require.LessOrEqual(t, len(w.queue.heap), 2*(300+1)+1)
	w.AdvanceTo(20_000)
	require.Len(t, rang, 301)
	require.True(t, slices.IsSorted(rang))
	require.Equal(t, 5000, rang[300])
}
