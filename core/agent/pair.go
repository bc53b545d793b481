package agent

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// pair cuts both lists at both sides' boundaries, so that entry i of one has the bytes of entry i of the other, as a direct transfer needs it.
func pair(local, remote []ports.Descriptor) (l, r []ports.Descriptor, bytes uint64, err error) {
	l = make([]ports.Descriptor, 0, max(len(local), len(remote)))
	r = make([]ports.Descriptor, 0, cap(l))
	var x, y ports.Descriptor
	i, j := 0, 0
	for {
		for ; x.Bytes == 0 && i < len(local); i++ {
			x = local[i]
		}
		for ; y.Bytes == 0 && j < len(remote); j++ {
			y = remote[j]
		}
		if x.Bytes == 0 || y.Bytes == 0 {
			break
		}
		if _, ok := x.End(); !ok {
			return nil, nil, 0, fmt.Errorf("local descriptor %d, %d bytes at %#x, does not fit 64 bits", i-1, x.Bytes, x.Addr)
		}
		if _, ok := y.End(); !ok {
			return nil, nil, 0, fmt.Errorf("remote descriptor %d, %d bytes at %#x, does not fit 64 bits", j-1, y.Bytes, y.Addr)
		}
		n := min(x.Bytes, y.Bytes)
		if bytes+n < bytes {
			return nil, nil, 0, fmt.Errorf("the request's bytes do not fit 64 bits")
		}
		l = append(l, ports.Descriptor{Addr: x.Addr, Bytes: n, Place: x.Place})
		r = append(r, ports.Descriptor{Addr: y.Addr, Bytes: n, Place: y.Place})
		bytes += n
		x.Addr, x.Bytes = x.Addr+n, x.Bytes-n
		y.Addr, y.Bytes = y.Addr+n, y.Bytes-n
	}
	if x.Bytes > 0 || y.Bytes > 0 {
		return nil, nil, 0, fmt.Errorf("local and remote differ in bytes")
	}
	return l, r, bytes, nil
}
