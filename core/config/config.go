package config

import "time"

// Values of Config.Control.
const (
	ControlZMQ  = "zmq"
	ControlNIXL = "nixl"
)

// Config is an agent's settings. Sizes are bytes. Take Default, FromEnv or Read, change what must differ, and call Validate once before use:
// it fills in what depends on other settings.
type Config struct {
	// Enable switches bounce on. When off, every request goes directly to the engine and AgentDesc carries no bounce blob.
	Enable bool

	// ArenaSize is the registered memory that serves receive grants and gather staging alike.
	ArenaSize uint64
	// ArenaGranularity is the smallest block that the arena hands out, a power of two.
	ArenaGranularity uint64
	// MaxChunkSize bounds one chunk; the peer's limit and arena bound it further (protocol.md, 4).
	MaxChunkSize uint64
	// ChunkTarget is how long chunks should be: a request is cut into as many as its bytes hold of it, to the nearest. 0: by the kind of memory.
	ChunkTarget uint64
	// MaxInflightChunks is the window of chunks that hold a region, for each request.
	MaxInflightChunks int
	// CopyStreams is the number of gathers and scatters that may run at once.
	CopyStreams int
	// CopyBlocks caps the blocks of 256 threads of one copy on a GPU, so that something is left for a model; 0: six for each multiprocessor. CopyHighPriority starts copies ahead of kernels that wait on
	// streams of normal priority. DisableFabricMemory makes arenas plain device memory even where the driver offers memory that other machines' GPUs reach over NVLink. They mean nothing for host memory.
	CopyBlocks          int
	CopyHighPriority    bool
	DisableFabricMemory bool

	// MinDescriptorCount and MaxAverageDescriptorSize decide whether a request bounces (protocol.md, 9): at least so many pieces after
	// merging, of at most this mean size.
	MinDescriptorCount       int
	MaxAverageDescriptorSize uint64

	// RequestTimeout fails a request that made no progress for so long.
	RequestTimeout time.Duration
	// ReceiverLease closes a flow at the receiver that has been silent for so long. 0: twice RequestTimeout, filled in by Validate.
	ReceiverLease time.Duration
	// SettleDelay is how long the regions of a fenced peer are kept while this side drives the engine (protocol.md, 7).
	SettleDelay time.Duration
	// RetirementDeadline is when memory of the caller that is still in doubt after a request's logical end becomes a fail-stop.
	RetirementDeadline time.Duration
	// CloseDeadline bounds closing an agent.
	CloseDeadline time.Duration
	// RetainLimit is how much of the arena may be retained without evidence before new bounce requests are refused.
	// 0: half of ArenaSize, filled in by Validate.
	RetainLimit uint64

	// EagerGather gathers chunks ahead of their credits.
	EagerGather bool

	// Control is the control channel, ControlZMQ or ControlNIXL.
	Control string
	// ControlBind is the endpoint that the ZMQ channel binds.
	ControlBind string
	// ControlAdvertise is the address or endpoint that peers are told. Empty: derived from the bound address, or from the default route.
	ControlAdvertise string

	// RequireReceiveToken refuses requests that carry no token of an open receive window.
	RequireReceiveToken bool
	// MaxPeers bounds the peer entries that frames, not the application, have made.
	MaxPeers int
	// MaxFlowsPerPeer bounds the open flows of one peer.
	MaxFlowsPerPeer int
	// MaxFrameSize is the largest frame that the control socket takes in.
	MaxFrameSize uint64

	// LogRate bounds the log lines of one text in a second; the others are only counted. 0: no limit.
	LogRate int

	// DebugListen is where the agent shows what it holds, over HTTP (docs/operate.md). Empty: nowhere. Nothing in core reads it.
	DebugListen string

	// ConfigFile is the path of the settings file that these settings were read from; "" when there was none. Nothing is read because of it.
	ConfigFile string

	// CurveSecretKeyFile and CurveAuthorizedKeysDir switch CURVE on for the ZMQ channel (protocol.md, 11); both or neither.
	CurveSecretKeyFile     string
	CurveAuthorizedKeysDir string
}

// Default returns the defaults of the table in Settings. ReceiverLease and RetainLimit are 0 until Validate.
func Default() Config {
	var c Config
	for _, r := range rows(&c) {
		if !r.described && !r.field.set(r.Default) {
			panic("config: the default of " + r.Name + " breaks its own rule")
		}
	}
	return c
}
