package wire

import "slices"

// extend lengthens b by n bytes and returns it with the new part, whose content is undefined.
func extend(b []byte, n int) (all, added []byte) {
	at := len(b)
	b = slices.Grow(b, n)[:at+n]
	return b, b[at:]
}

// appendUint32s is a hot path, as readUint32s is: an index table is most of a DATA. Four at a time, on arrays, which need no bounds checks.
func appendUint32s(dst []byte, list []uint32) []byte {
	dst, out := extend(dst, 4*len(list))
	for len(list) >= 4 && len(out) >= 16 {
		v, b := (*[4]uint32)(list), (*[16]byte)(out)
		le.PutUint64(b[:8], uint64(v[0])|uint64(v[1])<<32)
		le.PutUint64(b[8:], uint64(v[2])|uint64(v[3])<<32)
		list, out = list[4:], out[16:]
	}
	for i, v := range list {
		le.PutUint32(out[4*i:], v)
	}
	return dst
}

// readUint32s fills list from b, which has 4 bytes for each element.
func readUint32s(list []uint32, b []byte) {
	for len(list) >= 4 && len(b) >= 16 {
		v, p := (*[4]uint32)(list), (*[16]byte)(b)
		x, y := le.Uint64(p[:8]), le.Uint64(p[8:])
		v[0], v[1], v[2], v[3] = uint32(x), uint32(x>>32), uint32(y), uint32(y>>32)
		list, b = list[4:], b[16:]
	}
	for i := range list {
		list[i] = le.Uint32(b[4*i:])
	}
}
