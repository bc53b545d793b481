package config

import (
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSmallArenaLowersTheChunk(t *testing.T) {
	for _, tc := range []struct {
		arena, chunk string
		want         uint64
		warns        bool
	}{
		{"128M", "40M", 40 << 20, false}, // exactly two blocks of 64M
		{"127M", "40M", 32 << 20, true},
		{"100M", "40M", 32 << 20, true},
		{"64M", "32M", 32 << 20, false},
		{"63M", "32M", 16 << 20, true},
		{"2M", "40M", 1 << 20, true},
		{"2M", "4K", 4 << 10, false},   // a chunk takes a whole block of the granularity
		{"4193K", "3M", 2 << 20, true}, // 4M usable: the arena counts in blocks
		{"8G", "4294967295", 1<<32 - 1, false},
	} {
		c, warnings, err := FromEnv([]string{"KVBOUNCE_ARENA_SIZE=" + tc.arena, "KVBOUNCE_MAX_CHUNK_SIZE=" + tc.chunk})
		require.NoError(t, err, "%+v", tc)
		require.Equal(t, tc.want, c.MaxChunkSize, "%+v", tc)
		if tc.warns {
			require.Len(t, warnings, 1, "%+v", tc)
			require.Contains(t, warnings[0], "MAX_CHUNK_SIZE is lowered from "+tc.chunk)
			require.Contains(t, warnings[0], "ARENA_SIZE is "+tc.arena)
		} else {
			require.Empty(t, warnings, "%+v", tc)
		}
	}
}

func TestArenaBelowTwoBlocksIsAnError(t *testing.T) {
	_, _, err := FromEnv([]string{"KVBOUNCE_ARENA_SIZE=2097151"})
	require.EqualError(t, err, `KVBOUNCE_ARENA_SIZE is "2097151"; allowed: at least 2 x ARENA_GRANULARITY (2M)`)
}

// A rule between two settings that a default can't keep is told of the setting that was set.
func TestCrossFaultNamesWhatWasSet(t *testing.T) {
	for _, tc := range []struct {
		environ []string
		want    string
	}{
		{[]string{"KVBOUNCE_SETTLE_DELAY=600s"}, `KVBOUNCE_SETTLE_DELAY is "10m0s"; allowed: less than RETIREMENT_DEADLINE (default 5m0s), or raise that too`},
		{[]string{"KVBOUNCE_RETIREMENT_DEADLINE=100s"}, `KVBOUNCE_RETIREMENT_DEADLINE is "1m40s"; allowed: more than SETTLE_DELAY (3m0s)`},
		{[]string{"KVBOUNCE_SETTLE_DELAY=600s", "KVBOUNCE_RETIREMENT_DEADLINE=400s"}, `KVBOUNCE_RETIREMENT_DEADLINE is "6m40s"; allowed: more than SETTLE_DELAY (10m0s)`},
		{[]string{"KVBOUNCE_ARENA_GRANULARITY=1G"}, `KVBOUNCE_ARENA_GRANULARITY is "1G"; allowed: at most half of ARENA_SIZE (default 512M), or raise that too`},
	} {
		_, _, err := FromEnv(tc.environ)
		require.EqualError(t, err, tc.want)
	}
	_, err := Read(withFile(), fileOf(Entry{"settle_delay", "600s", 4}))
	require.ErrorContains(t, err, `settle_delay (kv.yaml line 4) is "10m0s"; allowed: less than RETIREMENT_DEADLINE`)
}

// Whatever arena, granularity and chunk are accepted, the arena holds two blocks for the chunk, and validating again changes nothing.
func TestAcceptedArenaHoldsTwoBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Default()
		c.ArenaGranularity = 1 << rapid.IntRange(0, 32).Draw(t, "granularity")
		c.ArenaSize = rapid.Uint64Range(1, maxArenaSize).Draw(t, "arena") >> rapid.IntRange(0, 46).Draw(t, "shift")
		c.MaxChunkSize = rapid.Uint64Range(1, maxChunkSize).Draw(t, "chunk")
		asked := c.MaxChunkSize
		warnings, err := c.Validate()
		if c.ArenaSize < 2*c.ArenaGranularity {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		block := uint64(1) << bits.Len64(c.MaxChunkSize-1)
		blocks := c.ArenaSize / c.ArenaGranularity / max(1, block/c.ArenaGranularity)
		require.GreaterOrEqual(t, blocks, uint64(2))
		require.Positive(t, c.MaxChunkSize)
		require.Equal(t, c.MaxChunkSize < asked, len(warnings) == 1)

		again := c
		warnings, err = again.Validate()
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, c, again)
	})
}

func TestDerivedDefaultsFollow(t *testing.T) {
	c := Default()
	c.RequestTimeout = 7 * time.Second
	c.ArenaSize = 1 << 30
	_, err := c.Validate()
	require.NoError(t, err)
	require.Equal(t, 14*time.Second, c.ReceiverLease)
	require.Equal(t, uint64(512<<20), c.RetainLimit)
}

func TestValidateReportsEveryFieldOfAProgram(t *testing.T) {
	c := Config{}
	_, err := c.Validate()
	for _, name := range []string{"ARENA_SIZE", "ARENA_GRANULARITY", "MAX_CHUNK_SIZE", "MAX_INFLIGHT_CHUNKS_PER_REQUEST", "COPY_STREAMS", "REQUEST_TIMEOUT",
		"SETTLE_DELAY", "RETIREMENT_DEADLINE", "CLOSE_DEADLINE", "CONTROL", "CONTROL_BIND", "MAX_PEERS", "MAX_FLOWS_PER_PEER", "MAX_FRAME_SIZE"} {
		require.ErrorContains(t, err, "KVBOUNCE_"+name+" is ")
	}
	c = Default()
	c.ReceiverLease = -time.Second
	c.MinDescriptorCount = -1
	_, err = c.Validate()
	require.ErrorContains(t, err, `KVBOUNCE_RECEIVER_LEASE is "-1s"`)
	require.ErrorContains(t, err, `KVBOUNCE_MIN_DESCRIPTOR_COUNT is "-1"`)
}

func TestCurveIsBothOrNeither(t *testing.T) {
	_, _, err := FromEnv([]string{"KVBOUNCE_CURVE_SECRET_KEY_FILE=key"})
	require.EqualError(t, err, `KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR is ""; allowed: a directory, since CURVE_SECRET_KEY_FILE is set`)
	_, _, err = FromEnv([]string{"KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR=peers"})
	require.EqualError(t, err, `KVBOUNCE_CURVE_SECRET_KEY_FILE is ""; allowed: a file, since CURVE_AUTHORIZED_KEYS_DIR is set`)
}

func TestCurveIsForZMQ(t *testing.T) {
	_, _, err := FromEnv([]string{"KVBOUNCE_CURVE_SECRET_KEY_FILE=key", "KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR=peers", "KVBOUNCE_CONTROL=nixl"})
	require.EqualError(t, err, `KVBOUNCE_CONTROL is "nixl"; allowed: zmq, since CURVE_SECRET_KEY_FILE is set, and NIXL's notifications are not encrypted`)
}
