package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

func TestMemoryFlag(t *testing.T) {
	for text, want := range map[string]ports.Place{
		"dram":       {},
		"vram":       {Kind: ports.Device},
		"vram:0":     {Kind: ports.Device},
		"vram:7":     {Kind: ports.Device, Device: 7},
		"vram:65535": {Kind: ports.Device, Device: 65535},
	} {
		var f memoryFlag
		require.NoError(t, f.Set(text), text)
		require.Equal(t, want, f.place, text)
	}
	for _, text := range []string{"", "gpu", "dram:0", "vram:", "vram:-1", "vram:x", "vram:65536", "VRAM"} {
		f := memoryFlag{ports.Place{Kind: ports.Device, Device: 3}}
		require.ErrorContains(t, f.Set(text), "allowed are", text)
		require.Equal(t, ports.Place{Kind: ports.Device, Device: 3}, f.place, "unchanged by %q", text)
	}
}

func TestMemoryIsCheckedBeforeWork(t *testing.T) {
	code, _, errs := command(t, "demo", "--memory", "tape")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `allowed are "dram", "vram" and "vram:N"`)
	code, _, errs = command(t, "demo", "--engine", "memory", "--memory", "vram")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `--memory is "vram", allowed with --engine memory is "dram"`)
}
