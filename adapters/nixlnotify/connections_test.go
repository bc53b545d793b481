package nixlnotify

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

func TestTheChannelDoesNotDisplaceTheAgentsMetadata(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.Connect(b.id, b.fake.full(3)))
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	require.Equal(t, 3, a.fake.peers[b.id].Registrations)
	a.channel.Disconnect(b.id)
	require.Equal(t, 3, a.fake.peers[b.id].Registrations, "the agent still uses it")
	require.Equal(t, ports.NoPeer, a.channel.Send(b.id, frame("x")))
	require.Equal(t, ports.Success, a.PostWrite(b.id, nil, nil).Status())
	a.Disconnect(b.id)
	require.Empty(t, a.fake.peers)
}

func TestTheAgentReplacesAnEndpointThatCameInAFrame(t *testing.T) {
	a, b := pair(t)
	forged := fakeMetadata{Identity: b.id, Connection: 77}
	require.NoError(t, a.channel.Connect(b.id, appendEndpoint(nil, forged.bytes())))
	require.NoError(t, a.Connect(b.id, b.fake.full(1)))
	require.Equal(t, fakeMetadata{b.id, b.fake.self.Connection, 1}, a.fake.peers[b.id])

	// Newer metadata of the same peer only adds; that it is loaded is not undone by what comes between.
	require.NoError(t, a.Connect(b.id, b.fake.full(2)))
	require.Equal(t, 2, a.fake.peers[b.id].Registrations)
}

func TestAddingAPeerWithBadMetadataLeavesTheWayBack(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	require.ErrorIs(t, a.Connect(b.id, a.fake.full(1)), ports.ErrBadMetadata)
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("x")))
	frames, _ := b.received()
	require.Equal(t, []string{string(frame("x"))}, frames)
	require.ErrorIs(t, a.Notify(b.id, []byte("hello")), ports.ErrUnknownPeer)
}

func TestTheAgentsDisconnectLeavesTheWayBack(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	a.Disconnect(b.id) // it never connected this one
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("1")))
	require.Equal(t, 1, a.fake.connects, "nothing was loaded again")

	require.NoError(t, a.Connect(b.id, b.fake.full(3)))
	a.Disconnect(b.id)
	require.Zero(t, a.fake.peers[b.id].Registrations, "what the agent loaded is forgotten")
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("2")))
	frames, _ := b.received()
	require.Equal(t, []string{string(frame("1")), string(frame("2"))}, frames)
	a.channel.Disconnect(b.id)
	require.Empty(t, a.fake.peers)
}

func TestTheAgentReachesOnlyWhomItConnected(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	for _, x := range []ports.Transfer{a.PostWrite(b.id, nil, nil), a.PostRead(b.id, nil, nil)} {
		require.Equal(t, ports.FailedNothingPosted, x.Status())
		require.ErrorIs(t, x.Err(), ports.ErrNothingPosted)
		require.ErrorIs(t, x.Err(), ports.ErrUnknownPeer)
		x.Release()
		require.Equal(t, ports.FailedNothingPosted, x.Status())
	}
	require.ErrorIs(t, a.Notify(b.id, []byte("hello")), ports.ErrUnknownPeer)
	require.NoError(t, a.Connect(b.id, b.fake.full(0)))
	require.NoError(t, a.Notify(b.id, []byte("hello")))
	require.Equal(t, ports.Success, a.PostRead(b.id, nil, nil).Status())
}

// An endpoint that no longer loads when the agent lets go costs the way, and nothing else.
func TestAnEndpointThatDoesNotLoadLater(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.Connect(b.id, b.fake.full(3)))
	require.NoError(t, a.channel.Connect(b.id, appendEndpoint(nil, a.fake.full(0))), "not looked into while it is not needed")
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("1")))
	a.Disconnect(b.id)
	require.Equal(t, ports.NoPeer, a.channel.Send(b.id, frame("2")))
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("3")))
}

// The two users connect and disconnect in any order. The engine is connected to exactly those that one of them has, with the agent's metadata wherever the agent has it.
func TestUsersOfConnections(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := &network{}
		a := n.end(t, "alice")
		peers := []end{n.end(t, "bob"), n.end(t, "carol")}
		agent, way := map[ports.Identity]int{}, map[ports.Identity]int{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			p := rapid.SampledFrom(peers).Draw(rt, "peer")
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				registrations := max(agent[p.id], rapid.IntRange(1, 3).Draw(rt, "registrations"))
				require.NoError(rt, a.Connect(p.id, p.fake.full(registrations)))
				agent[p.id] = registrations
			case 1:
				a.Disconnect(p.id)
				delete(agent, p.id)
			case 2:
				require.NoError(rt, a.channel.Connect(p.id, p.channel.Endpoint()))
				way[p.id] = p.fake.self.Connection
			case 3:
				elsewhere := fakeMetadata{Identity: p.id, Connection: 50}
				require.NoError(rt, a.channel.Connect(p.id, appendEndpoint(nil, elsewhere.bytes())))
				way[p.id] = elsewhere.Connection
			case 4:
				a.channel.Disconnect(p.id)
				delete(way, p.id)
			}
			for _, p := range peers {
				registrations, added := agent[p.id]
				connection, reached := way[p.id]
				loaded, connected := a.fake.peers[p.id]
				require.Equal(rt, added || reached, connected)
				switch {
				case added:
					require.Equal(rt, fakeMetadata{p.id, p.fake.self.Connection, registrations}, loaded)
				case reached:
					require.Equal(rt, fakeMetadata{p.id, connection, 0}, loaded)
				}
				require.Equal(rt, reached, a.channel.Send(p.id, nil) != ports.NoPeer)
				require.Equal(rt, added, a.Notify(p.id, []byte("x")) == nil)
			}
		}
	})
}
