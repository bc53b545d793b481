package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rowCase holds, for one setting, what a Config must hold by default and after each good value, and values that must be refused.
type rowCase struct {
	name     string
	original string
	get      func(Config) any
	unset    any
	good     map[string]any
	bad      []string
	with     []string // further variables that the good values need
}

func rowCases() []rowCase {
	booleans := map[string]any{"0": false, "False": false, "no": false, "OFF": false, "1": true, "TRUE": true, "yes": true, "On": true}
	notBooleans := []string{"2", "y", "enabled", " 1"}
	return []rowCase{
		{name: "ENABLE", original: "ENABLE", get: func(c Config) any { return c.Enable }, unset: false, good: booleans, bad: notBooleans},
		{name: "ARENA_SIZE", original: "ARENA_SIZE_BYTES", get: func(c Config) any { return c.ArenaSize }, unset: uint64(512 << 20),
			good: map[string]any{"1G": uint64(1 << 30), "300MiB": uint64(300 << 20), "131072G": uint64(128 << 40)},
			bad:  []string{"0", "131073G", "-1", "big", "512X", "99999999999G"}},
		{name: "ARENA_GRANULARITY", original: "ARENA_ALLOCATION_GRANULARITY_BYTES", get: func(c Config) any { return c.ArenaGranularity }, unset: uint64(1 << 20),
			good: map[string]any{"64K": uint64(64 << 10), "4MB": uint64(4 << 20)},
			bad:  []string{"0", "3M", "8G", "1.5M"}},
		{name: "MAX_CHUNK_SIZE", original: "MAX_CHUNK_SIZE_BYTES", get: func(c Config) any { return c.MaxChunkSize }, unset: uint64(40 << 20),
			good: map[string]any{"1": uint64(1), "32M": uint64(32 << 20), "100M": uint64(100 << 20)},
			bad:  []string{"0", "4G", "40 M"}},
		{name: "MAX_CHUNK_SIZE", get: func(c Config) any { return c.MaxChunkSize }, unset: uint64(40 << 20),
			good: map[string]any{"4294967295": uint64(math.MaxUint32)}, with: []string{"KVBOUNCE_ARENA_SIZE=8G"}},
		{name: "CHUNK_TARGET", get: func(c Config) any { return c.ChunkTarget }, unset: uint64(0),
			good: map[string]any{"1": uint64(1), "24M": uint64(24 << 20), "4294967295": uint64(math.MaxUint32)},
			bad:  []string{"0", "4G", "-8M"}},
		{name: "MAX_INFLIGHT_CHUNKS_PER_REQUEST", original: "MAX_INFLIGHT_CHUNKS_PER_REQUEST", get: func(c Config) any { return c.MaxInflightChunks }, unset: 8,
			good: map[string]any{"1": 1, "1024": 1024},
			bad:  []string{"0", "1025", "8K", "+8", "8.0", "99999999999999999999"}},
		{name: "COPY_STREAMS", original: "COPY_STREAM_COUNT", get: func(c Config) any { return c.CopyStreams }, unset: 8,
			good: map[string]any{"1": 1, "64": 64},
			bad:  []string{"0", "65", "-1"}},
		{name: "COPY_BLOCKS", get: func(c Config) any { return c.CopyBlocks }, unset: 0,
			good: map[string]any{"0": 0, "66": 66, "1048576": 1 << 20}, bad: []string{"-1", "1048577", "1K"}},
		{name: "COPY_HIGH_PRIORITY", get: func(c Config) any { return c.CopyHighPriority }, unset: false,
			good: map[string]any{"yes": true, "0": false}, bad: []string{"2", "high"}},
		{name: "DISABLE_FABRIC_MEMORY", original: "DISABLE_FABRIC_MEMORY", get: func(c Config) any { return c.DisableFabricMemory }, unset: false,
			good: map[string]any{"on": true, "false": false}, bad: []string{"2", "fabric"}},
		{name: "MIN_DESCRIPTOR_COUNT", original: "MIN_DESCRIPTOR_COUNT", get: func(c Config) any { return c.MinDescriptorCount }, unset: 1024,
			good: map[string]any{"0": 0, "2147483647": math.MaxInt32},
			bad:  []string{"-1", "2147483648", "1K"}},
		{name: "MAX_AVERAGE_DESCRIPTOR_SIZE", original: "MAX_AVERAGE_DESCRIPTOR_SIZE_BYTES", get: func(c Config) any { return c.MaxAverageDescriptorSize }, unset: uint64(16 << 10),
			good: map[string]any{"0": uint64(0), "64k": uint64(64 << 10)},
			bad:  []string{"-1", "16T"}},
		{name: "REQUEST_TIMEOUT", get: func(c Config) any { return c.RequestTimeout }, unset: 30 * time.Second,
			good: map[string]any{"1ms": time.Millisecond, "2m30s": 150 * time.Second, "1193h2m47.295s": math.MaxUint32 * time.Millisecond},
			bad:  []string{"0", "0s", "999us", "-1s", "1193h2m47.296s", "30", "inf", "never"}},
		{name: "RECEIVER_LEASE", get: func(c Config) any { return c.ReceiverLease }, unset: time.Minute,
			good: map[string]any{"31s": 31 * time.Second, "8760h": 8760 * time.Hour},
			bad:  []string{"0s", "30s", "10s", "8761h", "2x"}},
		{name: "SETTLE_DELAY", get: func(c Config) any { return c.SettleDelay }, unset: 3 * time.Minute,
			good: map[string]any{"1s": time.Second, "5s": 5 * time.Second},
			bad:  []string{"0s", "999ms", "300s", "8761h"}},
		{name: "RETIREMENT_DEADLINE", get: func(c Config) any { return c.RetirementDeadline }, unset: 5 * time.Minute,
			good: map[string]any{"180001ms": 180001 * time.Millisecond, "8760h": 8760 * time.Hour},
			bad:  []string{"0s", "180s", "inf", "8761h"}},
		{name: "CLOSE_DEADLINE", get: func(c Config) any { return c.CloseDeadline }, unset: 30 * time.Second,
			good: map[string]any{"1ns": time.Nanosecond, "10m": 10 * time.Minute},
			bad:  []string{"0", "-1s", "8761h"}},
		{name: "RETAIN_LIMIT", get: func(c Config) any { return c.RetainLimit }, unset: uint64(256 << 20),
			good: map[string]any{"1": uint64(1), "64M": uint64(64 << 20)},
			bad:  []string{"0", "half"}},
		{name: "EAGER_GATHER", original: "ENABLE_EAGER_GATHER", get: func(c Config) any { return c.EagerGather }, unset: true, good: booleans, bad: notBooleans},
		{name: "CONTROL", get: func(c Config) any { return c.Control }, unset: "zmq",
			good: map[string]any{"zmq": "zmq", "nixl": "nixl"},
			bad:  []string{"ZMQ", "tcp", "memory"}},
		{name: "CONTROL_BIND", get: func(c Config) any { return c.ControlBind }, unset: "tcp://*:0",
			good: same("tcp://[::]:5555", "tcp://[fd00::ab]:1", "tcp://10.0.0.1:65535", "tcp://*:7"),
			bad: []string{"*:0", "udp://*:0", "tcp://", "tcp://:5", "tcp://*", "tcp://*:", "tcp://*:65536", "tcp://*:http", "tcp://::1:5", "tcp://[]:5",
				"tcp://[::1:5", "tcp://::1]:5", "tcp://[1]:5", "tcp://eth0:5", "tcp://host.example:5", "tcp://[fe80::1%eth0]:5", "tcp://10.0.0.1 :5"}},
		{name: "CONTROL_ADVERTISE", get: func(c Config) any { return c.ControlAdvertise }, unset: "",
			good: same("tcp://[fd00::1]:7", "tcp://10.0.0.1:0", "10.0.0.1", "fd00::1", "[fd00::1]"),
			bad: []string{"pod-3", "pod-3:7", "10.0.0.1:7", "tcp://pod-3:7", "tcp://10.0.0.1", "tcp:10.0.0.1", "*", "tcp://*:7", "0.0.0.0", "tcp://0.0.0.0:7", "::",
				"tcp://[::]:7"}},
		{name: "REQUIRE_RECEIVE_TOKEN", get: func(c Config) any { return c.RequireReceiveToken }, unset: false, good: booleans, bad: notBooleans},
		{name: "MAX_PEERS", get: func(c Config) any { return c.MaxPeers }, unset: 4096,
			good: map[string]any{"1": 1, "2147483647": math.MaxInt32}, bad: []string{"0", "2147483648", "4K"}},
		{name: "MAX_FLOWS_PER_PEER", get: func(c Config) any { return c.MaxFlowsPerPeer }, unset: 4096,
			good: map[string]any{"1": 1, "100000": 100000}, bad: []string{"0", "2147483648", "4K"}},
		{name: "MAX_FRAME_SIZE", get: func(c Config) any { return c.MaxFrameSize }, unset: uint64(16 << 20),
			good: map[string]any{"8M": uint64(8 << 20), "4G": uint64(4 << 30)}, bad: []string{"8388607", "5G", "0"}},
		{name: "LOG_RATE", get: func(c Config) any { return c.LogRate }, unset: 10,
			good: map[string]any{"0": 0, "1000000": 1000000}, bad: []string{"-1", "1000001", "10/s"}},
		{name: "DEBUG_LISTEN", get: func(c Config) any { return c.DebugListen }, unset: "",
			good: same("unix:/run/kvbounce.sock", "127.0.0.1:0", "127.9.9.9:65535", "[::1]:7"),
			bad:  []string{"unix:@kvbounce", "unix:", "/run/kvbounce.sock", "0.0.0.0:7", "10.0.0.1:7", "[::]:7", "[fd00::1]:7", ":7", "*:7", "localhost:7", "127.0.0.1", "127.0.0.1:65536", "127.host.example:7", "tcp://127.0.0.1:7"}},
		{name: "CONFIG", get: func(c Config) any { return c.ConfigFile }, unset: "", good: map[string]any{"": ""}, bad: []string{"kvbounce.yaml"}}, // see TestFromEnvReadsNoFile
		{name: "CURVE_SECRET_KEY_FILE", get: func(c Config) any { return c.CurveSecretKeyFile }, unset: "",
			good: map[string]any{"/etc/kv/key": "/etc/kv/key"}, with: []string{"KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR=/etc/kv/peers"}},
		{name: "CURVE_AUTHORIZED_KEYS_DIR", get: func(c Config) any { return c.CurveAuthorizedKeysDir }, unset: "",
			good: map[string]any{"/etc/kv/peers": "/etc/kv/peers"}, with: []string{"KVBOUNCE_CURVE_SECRET_KEY_FILE=/etc/kv/key"}},
	}
}

// same maps values to themselves.
func same(values ...string) map[string]any {
	m := map[string]any{}
	for _, v := range values {
		m[v] = v
	}
	return m
}

func TestEveryRow(t *testing.T) {
	covered := map[string]bool{}
	for _, tc := range rowCases() {
		covered[tc.name] = true
		defaults := read(t)
		require.Equal(t, tc.unset, tc.get(defaults), tc.name)
		require.Equal(t, tc.unset, tc.get(read(t, Prefix+tc.name+"=")), "%s, empty", tc.name)
		for value, want := range tc.good {
			require.Equal(t, want, tc.get(read(t, append(tc.with, Prefix+tc.name+"="+value)...)), "%s=%s", tc.name, value)
		}
		for _, value := range tc.bad {
			_, _, err := FromEnv([]string{Prefix + tc.name + "=" + value})
			var bad *Error
			require.ErrorAs(t, err, &bad, "%s=%s", tc.name, value)
			require.Contains(t, err.Error(), tc.name, value)
			require.NotEmpty(t, bad.Allowed)
		}
	}
	for _, s := range Settings() {
		require.True(t, covered[s.Name], "no case for %s", s.Name)
	}
}

// The original's variables set the same fields; what is bad there is a warning and the default.
func TestEveryOriginalRow(t *testing.T) {
	suffixes := map[string]string{"REQUEST_TIMEOUT": "REQUEST_TIMEOUT_MS"}
	for _, tc := range rowCases() {
		if tc.original == "" {
			continue
		}
		suffixes[tc.name] = tc.original
		for value, want := range tc.good {
			require.Equal(t, want, tc.get(read(t, OriginalPrefix+tc.original+"="+value)), "%s=%s", tc.original, value)
		}
		for _, value := range tc.bad {
			c, warnings, err := FromEnv([]string{OriginalPrefix + tc.original + "=" + value})
			require.NoError(t, err, "%s=%s", tc.original, value)
			require.Equal(t, tc.unset, tc.get(c), "%s=%s", tc.original, value)
			require.Len(t, warnings, 1, "%s=%s", tc.original, value)
			require.Contains(t, warnings[0], OriginalPrefix+tc.original)
		}
	}
	for _, s := range Settings() {
		require.Equal(t, suffixes[s.Name], s.OriginalSuffix, s.Name)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	warnings, err := c.Validate()
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, read(t), c)
}

// read is FromEnv of an environment that must be accepted.
func read(t *testing.T, environ ...string) Config {
	t.Helper()
	c, _, err := FromEnv(environ)
	require.NoError(t, err)
	return c
}
