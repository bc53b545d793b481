package wire

import "slices"

// extend lengthens b by n bytes and returns it with the new part, whose content is undefined.
func extend(b []byte, n int) (all, added []byte) {
	at := len(b)
	b = slices.Grow(b, n)[:at+n]
	return b, b[at:]
}

// appendUint32s is a hot path: an index table is most of a DATA.
func appendUint32s(dst []byte, list []uint32) []byte {
	dst, out := extend(dst, 4*len(list))
	for i, v := range list {
		le.PutUint32(out[4*i:], v)
	}
	return dst
}

// readUint32s fills list from b, which has 4 bytes for each element.
func readUint32s(list []uint32, b []byte) {
	for i := range list {
		list[i] = le.Uint32(b[4*i:])
	}
}
