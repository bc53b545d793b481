//go:build !cuda

package wiring_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// Whatever concerns GPU memory says how to get a build that has it, whether bounce is required or not.
func TestGPUMemoryIsRefusedWithoutCUDA(t *testing.T) {
	for _, required := range []bool{false, true} {
		_, err := wiring.New(wiring.Params{Name: "a", Config: testConfig(), Place: ports.Place{Kind: ports.Device}, BounceRequired: required})
		require.ErrorIs(t, err, wiring.ErrNoCUDA)
	}
	app := fx.New(quiet(), wiring.CUDA, fx.Supply(wiring.Params{Name: "a", Config: testConfig()}), fx.Invoke(func(*agent.Agent) {}))
	require.ErrorIs(t, app.Err(), wiring.ErrNoCUDA)
	_, err := wiring.AllocateDevice(0, 1)
	require.ErrorIs(t, err, wiring.ErrNoCUDA)
	_, err = wiring.ReadyEvent(0, nil)
	require.ErrorIs(t, err, wiring.ErrNoCUDA)
}
