package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhichPathIsFaster(t *testing.T) {
	const why = "in host memory without RDMA bounce copies three times where direct copies once"
	for _, c := range []struct {
		speedup float64
		memory  string
		want    string
		why     bool
	}{
		{1.24, "dram", "bounce is 1.2 x as fast as the direct path;", false},
		{1.04, "dram", "bounce is as fast as the direct path;", false},
		{0.96, "dram", "bounce is as fast as the direct path;", false},
		{0.8, "dram", "bounce is 1.2 x slower than the direct path;", true},
		{0.8, "vram", "bounce is 1.2 x slower than the direct path;", false},
	} {
		var out strings.Builder
		(&result{Speedup: c.speedup, Memory: c.memory, to: c.memory}).print(&out)
		require.Contains(t, out.String(), "\n"+c.want)
		require.Equal(t, c.why, strings.Contains(out.String(), why), c)
	}
}
