//go:build cuda

package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// TestVRAMTwoProcesses is TestTwoProcessesNIXL in GPU memory.
func TestVRAMTwoProcesses(t *testing.T) {
	for _, control := range []string{"zmq", "nixl"} {
		t.Run(control, func(t *testing.T) {
			t.Setenv("KVBOUNCE_CONTROL", control)
			code, out, errs := command(t, "demo", "--memory", "vram", "--rounds", "2", "--json")
			require.Equal(t, exitOK, code, errs)
			var r map[string]any
			require.NoError(t, json.Unmarshal([]byte(out), &r), out)
			require.Equal(t, "vram", r["memory"])
			require.Equal(t, control, r["control"])
			require.Equal(t, true, r["verified"])
			require.Positive(t, r["bytes_checked"])
		})
	}
}

// TestVRAMBench measures in GPU memory between two processes and in one, with host memory on one side, and a sweep.
func TestVRAMBench(t *testing.T) {
	for name, args := range map[string][]string{
		"two processes": {"--memory", "vram", "--sweep", "--pieces", "4K,64K"},
		"one process":   {"--memory", "vram", "--one-process", "--prepared"},
		"from the host": {"--memory", "dram", "--to", "vram"},
		"to the host":   {"--memory", "vram", "--to", "dram"},
	} {
		t.Run(name, func(t *testing.T) {
			r := benchJSON(t, append(args, "--layout", "tiny", "--rounds", "2")...)
			require.Equal(t, args[1], r.Memory)
			require.Equal(t, pathBounce, r.Routed.Path)
			require.Positive(t, r.Checked)
		})
	}
}

func openVRAM(t *testing.T, name string) opened {
	p, err := spawn(os.Stderr, false)
	require.NoError(t, err)
	r, err := p.do(call{Op: "open", Name: name, Layout: "paged-4k", Seed: 1, Place: ports.Place{Kind: ports.Device}})
	require.NoError(t, err)
	return opened{p, r}
}

func (o opened) meetVRAM(t *testing.T, other opened) {
	r := o.must(t, call{Op: "add", Desc: other.Desc, DstBase: other.DstBase, Place: other.Place})
	require.True(t, r.Bounce, r.Reason)
}

// TestVRAMKilledReceiver kills the receiving process while a transfer is under way: the sender says so, and serves the next receiver.
func TestVRAMKilledReceiver(t *testing.T) {
	t.Setenv("KVBOUNCE_REQUEST_TIMEOUT", "2s")
	t.Setenv("KVBOUNCE_CLOSE_DEADLINE", "1s") // of the sender, which ends with memory in doubt
	sender := openVRAM(t, "sender")
	for round, path := range []string{"bounce", "direct", "bounce"} {
		receiver := openVRAM(t, "receiver")
		sender.meetVRAM(t, receiver)
		receiver.meetVRAM(t, sender)
		sender.transfer(t, receiver, path, uint64(2*round))
		sender.must(t, call{Op: "start", Path: path, Seed: 1, Round: uint64(2*round + 1)})
		require.NoError(t, receiver.kill())
		r := sender.must(t, call{Op: "wait"})
		if path == "direct" {
			require.NotEmpty(t, r.Failure, "18432 writes take far longer than the kill")
		}
	}
	receiver := openVRAM(t, "receiver")
	sender.meetVRAM(t, receiver)
	receiver.meetVRAM(t, sender)
	sender.transfer(t, receiver, "bounce", 100)
	require.NoError(t, receiver.end())
	_ = sender.end() // in doubt, by what the killed ones left
}
