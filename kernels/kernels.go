// Package kernels holds the GPU code of adapters/cuda: the CUDA source, and the PTX that `make ptx` makes of it, which is what programs carry. Every driver of CUDA 12 or newer
// compiles it for its GPU, from compute capability 8.0 (Ampere) on.
package kernels

import _ "embed"

// PTX is the module with the kernels Gather and Scatter.
//
//go:embed gather_scatter.ptx
var PTX string

// The kernels' names in PTX. Both take one parameter, a plan (gather_scatter.cu).
const (
	Gather  = "kvb_gather"
	Scatter = "kvb_scatter"
)
