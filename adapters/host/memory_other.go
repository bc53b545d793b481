//go:build !linux

package host

// adviseHugePages does nothing where the system has no such advice.
func adviseHugePages([]byte) {}
