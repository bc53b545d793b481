//go:build cuda

package doctor

const builtWithCUDA = true
