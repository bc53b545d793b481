package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOriginalTimeoutIsMilliseconds(t *testing.T) {
	c := read(t, "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS=1500")
	require.Equal(t, 1500*time.Millisecond, c.RequestTimeout)
	require.Equal(t, 3*time.Second, c.ReceiverLease, "the lease follows")
	require.Equal(t, 2147483647*time.Millisecond, read(t, "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS=2147483647").RequestTimeout)
	for _, value := range []string{"0", "-1", "2147483648", "30s", "1.5", "18446744073709551616"} {
		c, warnings, err := FromEnv([]string{"TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS=" + value})
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, c.RequestTimeout)
		require.Equal(t, []string{`TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS is "` + value +
			`"; allowed: 1 to 2147483647 milliseconds; the default 30s is used`}, warnings)
	}
}

func TestOwnNameWins(t *testing.T) {
	for _, environ := range [][]string{
		{"KVBOUNCE_COPY_STREAMS=2", "TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=3"},
		{"TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=3", "KVBOUNCE_COPY_STREAMS=2"},
		{"TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=nonsense", "KVBOUNCE_COPY_STREAMS=2"},
	} {
		c, warnings, err := FromEnv(environ)
		require.NoError(t, err)
		require.Equal(t, 2, c.CopyStreams)
		require.Empty(t, warnings)
	}
	require.Equal(t, 3, read(t, "KVBOUNCE_COPY_STREAMS=", "TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=3").CopyStreams, "an empty variable is unset")
}

func TestFirstOfTwoCounts(t *testing.T) {
	require.Equal(t, 2, read(t, "KVBOUNCE_COPY_STREAMS=2", "KVBOUNCE_COPY_STREAMS=3").CopyStreams)
}

func TestForeignVariablesAreNotRead(t *testing.T) {
	c, warnings, err := FromEnv([]string{"PATH=/bin", "ARENA_SIZE=1", "kvbounce_enable=1", "=C:", "KVBOUNCE", "", "KVBOUNCE_NIXL_LIB=libnixl_capi.so"})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, read(t), c)
}

func TestUnknownNamesAreOneWarningEach(t *testing.T) {
	_, warnings, err := FromEnv([]string{
		"TRTLLM_NIXL_BOUNCE_USE_ZERO_COPY_ARGUMENTS=1", "TRTLLM_NIXL_BOUNCE_SCATTER_WORKER_COUNT=4", "TRTLLM_NIXL_BOUNCE_DISABLE_FABRIC_MEMORY=",
		"KVBOUNCE_ARENA_SIZE_BYTES=1", "TRTLLM_NIXL_BOUNCE_COPY_STREAMS=1", "TRTLLM_NIXL_BOUNCE_=1",
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"no setting has these names, they are ignored: KVBOUNCE_ARENA_SIZE_BYTES",
		"no setting has these names, they are ignored: TRTLLM_NIXL_BOUNCE_, TRTLLM_NIXL_BOUNCE_COPY_STREAMS, " +
			"TRTLLM_NIXL_BOUNCE_SCATTER_WORKER_COUNT, TRTLLM_NIXL_BOUNCE_USE_ZERO_COPY_ARGUMENTS",
	}, warnings)
}

func TestAllBadSettingsAtOnce(t *testing.T) {
	c, _, err := FromEnv([]string{"KVBOUNCE_COPY_STREAMS=65", "KVBOUNCE_ENABLE=maybe", "KVBOUNCE_RECEIVER_LEASE=1s", "KVBOUNCE_SETTLE_DELAY=0s"})
	require.EqualError(t, err, strings.Join([]string{
		`KVBOUNCE_ENABLE is "maybe"; allowed: 0, false, no, off or 1, true, yes, on`,
		`KVBOUNCE_COPY_STREAMS is "65"; allowed: 1 to 64`,
		`KVBOUNCE_SETTLE_DELAY is "0s"; allowed: a duration from 1s to 8760h`,
		`KVBOUNCE_RECEIVER_LEASE is "1s"; allowed: more than REQUEST_TIMEOUT (30s)`,
	}, "\n"))
	require.Equal(t, Config{}, c)
}

// A rule between two settings is not reported against the default of one that was itself bad.
func TestNoFaultAgainstAReplacedValue(t *testing.T) {
	_, _, err := FromEnv([]string{"KVBOUNCE_REQUEST_TIMEOUT=5x", "KVBOUNCE_RECEIVER_LEASE=10s"})
	require.EqualError(t, err, `KVBOUNCE_REQUEST_TIMEOUT is "5x", want a duration such as 30s or 500ms; allowed: a duration from 1ms to 1193h2m47.295s`)
}

// An original's value that only breaks a rule between settings is a warning and the default too.
func TestOriginalInACrossFault(t *testing.T) {
	c, warnings, err := FromEnv([]string{"TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES=512K", "TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=3"})
	require.NoError(t, err)
	require.Equal(t, uint64(512<<20), c.ArenaSize)
	require.Equal(t, uint64(256<<20), c.RetainLimit)
	require.Equal(t, 3, c.CopyStreams, "other originals stay")
	require.Equal(t, []string{`TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES is "512K"; allowed: at least 2 x ARENA_GRANULARITY (2M); ` +
		`TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES is ignored, the default 512M is used`}, warnings)

	_, warnings, err = FromEnv([]string{"KVBOUNCE_ARENA_GRANULARITY=512M", "TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES=1000M"})
	require.ErrorContains(t, err, `KVBOUNCE_ARENA_GRANULARITY is "512M"; allowed: at most half of ARENA_SIZE (default 512M), or raise that too`)
	require.Len(t, warnings, 1)

	_, warnings, err = FromEnv([]string{"KVBOUNCE_RECEIVER_LEASE=50s", "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS=60000"})
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS is ignored, the default 30s is used")
}

// A value that is not even written as its kind shows how that is written, in the environment, in a file and under the original's names.
func TestBadValueShowsTheForm(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"REQUEST_TIMEOUT", "5", ", want a duration such as 30s or 500ms; allowed: a duration from 1ms to 1193h2m47.295s"},
		{"CLOSE_DEADLINE", "1 h", ", want a duration such as 30s or 500ms; allowed: a duration above 0, up to 8760h"},
		{"REQUEST_TIMEOUT", "0s", "; allowed: a duration from 1ms to 1193h2m47.295s"},
		{"ARENA_SIZE", "512 M", ", want a size such as 4096, 64K or 512M; allowed: a size up to 131072G"},
		{"ARENA_GRANULARITY", "1.5M", ", want a size such as 4096, 64K or 512M; allowed: a power of two up to 4G"},
		{"ARENA_GRANULARITY", "3M", "; allowed: a power of two up to 4G"},
		{"RETAIN_LIMIT", "half", ", want a size such as 4096, 64K or 512M; allowed: a size, 1 or more"},
		{"COPY_STREAMS", "8K", ", want a whole number such as 8, digits alone; allowed: 1 to 64"},
		{"COPY_STREAMS", "0", "; allowed: 1 to 64"},
		{"ENABLE", "maybe", "; allowed: 0, false, no, off or 1, true, yes, on"},
		{"CONTROL", "tcp", "; allowed: zmq or nixl"},
		{"CONTROL_BIND", "*:0", "; allowed: tcp://ADDRESS:PORT, numeric, IPv6 in brackets"},
	} {
		_, _, err := FromEnv([]string{Prefix + tc.name + "=" + tc.value})
		require.ErrorContains(t, err, Prefix+tc.name+` is "`+tc.value+`"`+tc.want)
		_, err = Read(withFile(), fileOf(Entry{strings.ToLower(tc.name), tc.value, 2}))
		require.ErrorContains(t, err, ` (kv.yaml line 2) is "`+tc.value+`"`+tc.want)
	}
	_, warnings, err := FromEnv([]string{"TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=8K"})
	require.NoError(t, err)
	require.Equal(t, []string{`TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT is "8K", want a whole number such as 8, digits alone; allowed: 1 to 64; the default 8 is used`}, warnings)
}
