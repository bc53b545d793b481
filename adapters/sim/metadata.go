package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kvbounce/kvbounce/ports"
)

// An engine's metadata is "KVSM", the identity's length (u16) and bytes, the count (u32) of ranges, each as address (u64), bytes (u64), kind (u8) and device (u32),
// and the CRC-32C of all that. Integers are little-endian.
const (
	metadataMagic = "KVSM"
	rangeBytes    = 8 + 8 + 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeMetadata(id ports.Identity, ranges []ports.Descriptor) []byte {
	b := append([]byte(metadataMagic), byte(len(id)), byte(len(id)>>8))
	b = append(b, id...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ranges)))
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.Addr)
		b = binary.LittleEndian.AppendUint64(b, r.Bytes)
		b = append(b, byte(r.Place.Kind))
		b = binary.LittleEndian.AppendUint32(b, r.Place.Device)
	}
	return checksummed(b)
}

func checksummed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeMetadata fails with ports.ErrBadMetadata for all that encodeMetadata did not make.
func decodeMetadata(b []byte) (id ports.Identity, ranges []ports.Descriptor, err error) {
	bad := func(what string) (ports.Identity, []ports.Descriptor, error) {
		return "", nil, fmt.Errorf("%w: %s", ports.ErrBadMetadata, what)
	}
	if len(b) < len(metadataMagic)+2+4+4 || string(b[:len(metadataMagic)]) != metadataMagic {
		return bad("not of this engine, or too short")
	}
	content := b[:len(b)-4]
	if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(b[len(content):]) {
		return bad("the checksum is wrong")
	}
	rest := content[len(metadataMagic):]
	idBytes := int(binary.LittleEndian.Uint16(rest))
	rest = rest[2:]
	if len(rest) < idBytes+4 {
		return bad("the identity is cut off")
	}
	id, rest = ports.Identity(rest[:idBytes]), rest[idBytes:]
	count := uint64(binary.LittleEndian.Uint32(rest))
	rest = rest[4:]
	if count*rangeBytes != uint64(len(rest)) {
		return bad("the count of ranges is wrong")
	}
	ranges = make([]ports.Descriptor, count)
	for i := range ranges {
		r := rest[i*rangeBytes:]
		ranges[i] = ports.Descriptor{
			Addr:  binary.LittleEndian.Uint64(r),
			Bytes: binary.LittleEndian.Uint64(r[8:]),
			Place: ports.Place{Kind: ports.MemoryKind(r[16]), Device: binary.LittleEndian.Uint32(r[17:])},
		}
		if _, ok := ranges[i].End(); !ok {
			return bad("a range does not fit 64 bits")
		}
	}
	return id, ranges, nil
}
