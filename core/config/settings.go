package config

import (
	"math"
	"time"
)

// Prefixes of the environment variables: our own, and that of the design this one grew from, whose names are accepted at lower priority.
const (
	Prefix         = "KVBOUNCE_"
	OriginalPrefix = "TRTLLM_NIXL_BOUNCE_"
)

// Setting describes one row of the settings table.
type Setting struct {
	// Name is the name without Prefix.
	Name string
	// Default is the default as the environment would hold it, or words where it depends on other things.
	Default string
	// Rule says which values are allowed.
	Rule string
	// OriginalSuffix is the name after OriginalPrefix, empty where that design had no such setting.
	OriginalSuffix string
}

// Settings returns the settings table in the order of protocol.md, 10.
func Settings() []Setting {
	var c Config
	table := rows(&c)
	settings := make([]Setting, len(table))
	for i, r := range table {
		settings[i] = r.Setting
	}
	return settings
}

// row ties a setting to its field in one Config.
type row struct {
	Setting
	field field
	// described: Default is words, and the field's zero value stands for it.
	described bool
	// setOriginal and originalRule stand for field.set and Rule where the original's variable has another form.
	setOriginal  func(text string) bool
	originalRule string
}

const (
	// A chunk's length is a u32 in credits and in WANT (protocol.md, 3).
	maxChunkSize = math.MaxUint32
	// A frame's payload length is a u32.
	maxFrameSize = 4 << 30
	// DATA is closed before it exceeds 4 MiB (protocol.md, 5); twice that leaves room for the endpoint and the envelope.
	minFrameSize = 8 << 20
	// User address space on amd64 and arm64 with four-level page tables.
	maxArenaSize = 128 << 40
	// The handshake carries the timeout as a u32 of milliseconds (protocol.md, 4).
	maxRequestTimeout = math.MaxUint32 * time.Millisecond
	// Keeps sums of a deadline and the clock far from overflow; longer is a typing error.
	maxDuration = 365 * 24 * time.Hour
)

// rows is the settings table over the fields of c.
func rows(c *Config) []row {
	const (
		boolRule  = "0, false, no, off or 1, true, yes, on"
		curveRule = "CURVE_SECRET_KEY_FILE and CURVE_AUTHORIZED_KEYS_DIR, both or neither"
	)
	return []row{
		{Setting: Setting{"ENABLE", "0", boolRule, "ENABLE"},
			field: boolean{&c.Enable}},
		{Setting: Setting{"ARENA_SIZE", "512M",
			"a size up to 131072G, at least 2 x ARENA_GRANULARITY; below 2 x the power of two >= MAX_CHUNK_SIZE it lowers MAX_CHUNK_SIZE", "ARENA_SIZE_BYTES"},
			field: size(&c.ArenaSize, 1, maxArenaSize)},
		{Setting: Setting{"ARENA_GRANULARITY", "1M", "a power of two up to 4G", "ARENA_ALLOCATION_GRANULARITY_BYTES"},
			field: powerOfTwo(&c.ArenaGranularity, 4<<30)},
		{Setting: Setting{"MAX_CHUNK_SIZE", "40M", "a size from 1 to 4294967295; a small arena lowers it, see ARENA_SIZE", "MAX_CHUNK_SIZE_BYTES"},
			field: size(&c.MaxChunkSize, 1, maxChunkSize)},
		{Setting: Setting{"CHUNK_TARGET", "8M in host memory, 32M between devices", "a size from 1 to 4294967295; MAX_CHUNK_SIZE bounds it", ""},
			field: size(&c.ChunkTarget, 1, maxChunkSize), described: true},
		{Setting: Setting{"MAX_INFLIGHT_CHUNKS_PER_REQUEST", "8", "1 to 1024", "MAX_INFLIGHT_CHUNKS_PER_REQUEST"},
			field: count(&c.MaxInflightChunks, 1, 1024)},
		{Setting: Setting{"COPY_STREAMS", "8", "1 to 64", "COPY_STREAM_COUNT"},
			field: count(&c.CopyStreams, 1, 64)},
		{Setting: Setting{"COPY_BLOCKS", "0", "0 to 1048576 blocks of a copy on a GPU; 0 for six for each multiprocessor", ""},
			field: count(&c.CopyBlocks, 0, 1<<20)},
		{Setting: Setting{"COPY_HIGH_PRIORITY", "0", boolRule, ""},
			field: boolean{&c.CopyHighPriority}},
		{Setting: Setting{"DISABLE_FABRIC_MEMORY", "0", boolRule, "DISABLE_FABRIC_MEMORY"},
			field: boolean{&c.DisableFabricMemory}},
		{Setting: Setting{"MIN_DESCRIPTOR_COUNT", "1024", "0 to 2147483647", "MIN_DESCRIPTOR_COUNT"},
			field: count(&c.MinDescriptorCount, 0, math.MaxInt32)},
		{Setting: Setting{"MAX_AVERAGE_DESCRIPTOR_SIZE", "16K", "a size, 0 or more", "MAX_AVERAGE_DESCRIPTOR_SIZE_BYTES"},
			field: size(&c.MaxAverageDescriptorSize, 0, math.MaxUint64)},
		{Setting: Setting{"REQUEST_TIMEOUT", "30s", "a duration from 1ms to 1193h2m47.295s", "REQUEST_TIMEOUT_MS"},
			field:       duration(&c.RequestTimeout, time.Millisecond, maxRequestTimeout),
			setOriginal: milliseconds(&c.RequestTimeout, math.MaxInt32), originalRule: "1 to 2147483647 milliseconds"},
		{Setting: Setting{"RECEIVER_LEASE", "2 x REQUEST_TIMEOUT", "a duration above REQUEST_TIMEOUT, up to 8760h", ""},
			field: duration(&c.ReceiverLease, 1, maxDuration), described: true},
		{Setting: Setting{"SETTLE_DELAY", "180s", "a duration from 1s to 8760h", ""},
			field: duration(&c.SettleDelay, time.Second, maxDuration)},
		{Setting: Setting{"RETIREMENT_DEADLINE", "300s", "a duration above SETTLE_DELAY, up to 8760h", ""},
			field: duration(&c.RetirementDeadline, 1, maxDuration)},
		{Setting: Setting{"CLOSE_DEADLINE", "30s", "a duration above 0, up to 8760h", ""},
			field: duration(&c.CloseDeadline, 1, maxDuration)},
		{Setting: Setting{"RETAIN_LIMIT", "half of ARENA_SIZE", "a size, 1 or more", ""},
			field: size(&c.RetainLimit, 1, math.MaxUint64), described: true},
		{Setting: Setting{"EAGER_GATHER", "1", boolRule, "ENABLE_EAGER_GATHER"},
			field: boolean{&c.EagerGather}},
		{Setting: Setting{"CONTROL", "zmq", "zmq or nixl", ""},
			field: text{&c.Control, isControl}},
		{Setting: Setting{"CONTROL_BIND", "tcp://*:0", "tcp://ADDRESS:PORT, numeric, IPv6 in brackets; * for all addresses, port 0 for any free one", ""},
			field: text{&c.ControlBind, isBind}},
		{Setting: Setting{"CONTROL_ADVERTISE", "the bound address if it is a specific one, else the source address of the default route",
			"a numeric address, or tcp://ADDRESS:PORT with IPv6 in brackets; port 0 for the bound one", ""},
			field: text{&c.ControlAdvertise, isAdvertise}, described: true},
		{Setting: Setting{"REQUIRE_RECEIVE_TOKEN", "0", boolRule, ""},
			field: boolean{&c.RequireReceiveToken}},
		{Setting: Setting{"MAX_PEERS", "4096", "1 to 2147483647", ""},
			field: count(&c.MaxPeers, 1, math.MaxInt32)},
		{Setting: Setting{"MAX_FLOWS_PER_PEER", "4096", "1 to 2147483647", ""},
			field: count(&c.MaxFlowsPerPeer, 1, math.MaxInt32)},
		{Setting: Setting{"MAX_FRAME_SIZE", "16M", "a size from 8M to 4G", ""},
			field: size(&c.MaxFrameSize, minFrameSize, maxFrameSize)},
		{Setting: Setting{"LOG_RATE", "10", "0 to 1000000 lines of one text in a second; 0 for no limit", ""},
			field: count(&c.LogRate, 0, 1000000)},
		{Setting: Setting{"DEBUG_LISTEN", "none", "unix:PATH, or ADDRESS:PORT with a loopback address (127.0.0.1, [::1]), port 0 for any free one", ""},
			field: text{&c.DebugListen, isDebugListen}, described: true},
		{Setting: Setting{"CONFIG", "none", "path of a settings file in YAML; see below", ""},
			field: text{&c.ConfigFile, isAny}, described: true},
		{Setting: Setting{"CURVE_SECRET_KEY_FILE", "none", curveRule, ""},
			field: text{&c.CurveSecretKeyFile, isAny}, described: true},
		{Setting: Setting{"CURVE_AUTHORIZED_KEYS_DIR", "none", curveRule, ""},
			field: text{&c.CurveAuthorizedKeysDir, isAny}, described: true},
	}
}
