package wiring_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/wiring"
)

func quiet() fx.Option { return fx.NopLogger }

// TestModules starts and stops an application on each module. The reactor runs in between and nothing is left behind (TestMain looks for goroutines).
func TestModules(t *testing.T) {
	for name, module := range map[string]fx.Option{"host": wiring.Host, "memory": wiring.Memory} {
		t.Run(name, func(t *testing.T) {
			var a *agent.Agent
			app := fxtest.New(t, quiet(), module, fx.Supply(wiring.Params{Name: "fx", Config: testConfig(), BounceRequired: true}), fx.Populate(&a))
			app.RequireStart()
			require.True(t, a.BounceEnabled())
			require.Equal(t, "fx", a.Identity().Name())
			// RemovePeer answers from the reactor.
			id := a.Identity()
			require.NoError(t, a.RemovePeer(id))
			app.RequireStop()
			_, err := a.Submit(agent.Request{Peer: id})
			require.Error(t, err)
		})
	}
}

// Two applications of one process reach each other in a shared World.
func TestModulesShareAWorld(t *testing.T) {
	world := wiring.NewWorld()
	start := func(name string) *agent.Agent {
		var a *agent.Agent
		app := fxtest.New(t, quiet(), wiring.Memory, fx.Replace(world), fx.Supply(wiring.Params{Name: name, Config: testConfig()}), fx.Populate(&a))
		app.RequireStart()
		t.Cleanup(app.RequireStop)
		return a
	}
	a, b := start("a"), start("b")
	d, err := b.Describe()
	require.NoError(t, err)
	report, err := a.AddPeer(d, false)
	require.NoError(t, err)
	require.True(t, report.Bounce, report.Reason)
}

func TestModuleRefusesBadParams(t *testing.T) {
	cfg := testConfig()
	cfg.CopyStreams = 0
	for name, p := range map[string]wiring.Params{
		"name":   {Name: "a#b", Config: testConfig()},
		"config": {Name: "a", Config: cfg},
	} {
		t.Run(name, func(t *testing.T) {
			app := fx.New(quiet(), wiring.Memory, fx.Supply(p), fx.Invoke(func(*agent.Agent) {}))
			require.Error(t, app.Err())
			require.NoError(t, app.Stop(context.Background()))
		})
	}
}
