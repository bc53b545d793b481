package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	presets "github.com/kvbounce/kvbounce/wiring/layout"
)

// command runs a command line in this process.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(args, streams{in: strings.NewReader(""), out: &o, err: &e})
	return code, o.String(), e.String()
}

func checkDemo(t *testing.T, out, engine, control string, requests int) {
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Equal(t, engine, r["engine"])
	require.Equal(t, control, r["control"])
	require.Equal(t, "dram", r["memory"])
	require.Equal(t, true, r["verified"])
	layout := r["layout"].(map[string]any)
	require.Equal(t, map[string]any{"name": "paged-4k", "descriptors": 18432.0, "bytes": 18432.0 * 4096}, layout)
	// Both directions and both paths, the warm-up round too; each time the whole destination block, with what lies between the pages.
	l, err := presets.Preset("paged-4k", 1)
	require.NoError(t, err)
	require.EqualValues(t, float64(2*2*(requests/2+warmUps))*float64(l.DstBlock), r["bytes_checked"])
	for _, path := range []string{"bounce", "direct"} {
		p := r[path].(map[string]any)
		require.EqualValues(t, requests, p["requests"])
		require.Positive(t, p["p50_us"])
		require.GreaterOrEqual(t, p["p99_us"], p["p50_us"])
		require.Positive(t, p["gbps"])
	}
	require.Positive(t, r["speedup"])
	require.Positive(t, r["data_message_bytes"])
	stages := r["stages_us"].(map[string]any)
	for _, s := range []string{"plan", "want_grant", "gather", "write", "data_ack"} {
		require.Positive(t, stages[s], s)
	}
}

// TestTwoProcessesNIXL is the main job: two processes, real NIXL, each control channel, both directions, both paths, every byte checked.
func TestTwoProcessesNIXL(t *testing.T) {
	for _, control := range []string{"zmq", "nixl"} {
		t.Run(control, func(t *testing.T) {
			t.Setenv("KVBOUNCE_CONTROL", control)
			code, out, errs := command(t, "demo", "--rounds", "2", "--json")
			require.Equal(t, exitOK, code, errs)
			checkDemo(t, out, "nixl", control, 4)
		})
	}
}

// Within one process frames go over the world's own channel, or over its engine's notifications.
func TestDemoInProcess(t *testing.T) {
	for setting, control := range map[string]string{"zmq": "memory", "nixl": "nixl"} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv("KVBOUNCE_CONTROL", setting)
			code, out, errs := command(t, "demo", "--engine", "memory", "--rounds", "2", "--json")
			require.Equal(t, exitOK, code, errs)
			checkDemo(t, out, "memory", control, 4)
		})
	}
}

func TestDemoTable(t *testing.T) {
	code, out, errs := command(t, "demo", "--engine", "memory", "--rounds", "1", "--layout", "tiny")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs, "no progress bar where standard error is no terminal")
	require.Contains(t, out, "tiny: 4096 pieces, 2.0 MiB, both ways; engine memory")
	require.Contains(t, out, "all right")
}

// Every preset moves and is checked: padding, odd lengths, gaps and strides.
func TestDemoLayouts(t *testing.T) {
	for _, name := range []string{"llama70b-tp8", "vllm-block16", "strided-heads", "tiny", "contiguous"} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := command(t, "demo", "--engine", "memory", "--rounds", "1", "--layout", name, "--json")
			require.Equal(t, exitOK, code, errs)
			require.Contains(t, out, `"verified":true`)
		})
	}
}

func TestBadUsage(t *testing.T) {
	for _, c := range []struct {
		args  []string
		field string
		text  string
	}{
		{[]string{"demo", "--engine", "rdma"}, "engine", `"nixl" and "memory"`},
		{[]string{"demo", "--rounds", "0"}, "rounds", "1 to 10000"},
		{[]string{"demo", "--rounds", "x"}, "flags", "rounds"},
		{[]string{"demo", "--layout", "nope"}, "layout", "paged-4k"},
		{[]string{"demo", "now"}, "arguments", "takes no arguments"},
		{[]string{"demo", "--nope"}, "flags", "--nope"},
		{[]string{"fly"}, "command", "fly"},
		{[]string{"help", "fly"}, "command", "fly"},
		{[]string{"demo", "--seed", "-1"}, "flags", "want a whole number"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, out, errs := command(t, c.args...)
			require.Equal(t, exitUsage, code)
			require.Empty(t, out)
			require.Contains(t, errs, c.text)
			require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)

			code, out, _ = command(t, append(c.args, "--json")...)
			require.Equal(t, exitUsage, code)
			var e struct {
				Error struct{ Field, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &e), out)
			require.Equal(t, c.field, e.Error.Field)
			require.Contains(t, e.Error.Message, c.text)
		})
	}
}

// What the environment can get wrong is one sentence that says what to do.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"KVBOUNCE_NIXL_LIB", "/nonexistent/libnixl_capi.so", []string{"KVBOUNCE_NIXL_LIB", "/nonexistent"}},
		{"KVBOUNCE_REQUEST_TIMEOUT", "never", []string{"KVBOUNCE_REQUEST_TIMEOUT", "never"}},
		{"KVBOUNCE_ARENA_SIZE", "1K", []string{"ARENA_SIZE"}},
		{"KVBOUNCE_CONTROL_BIND", "tcp://127.0.0.1:1x", []string{"CONTROL_BIND"}},
		{"KVBOUNCE_CONTROL", "smoke-signals", []string{"CONTROL", "zmq"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			code, out, errs := command(t, "demo", "--rounds", "1")
			require.Equal(t, exitFailed, code)
			require.Empty(t, out)
			for _, w := range c.want {
				require.Contains(t, errs, w)
			}
			require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)
		})
	}
}
