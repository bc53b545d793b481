package nixl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"

	"github.com/kvbounce/kvbounce/ports"
)

// Metadata is NIXL's own blob in an envelope. NIXL must never see a damaged blob: one that is damaged in its region part makes that peer's name unusable for the
// rest of the agent's life (nixl.md, 6). The envelope also tells what NIXL's does not: what is registered, and whether loading it over an older copy only adds.
//
// Layout, little-endian:
//
//	 0  magic      "KVBX"
//	 4  format     u32 = 1
//	 8  checksum   u32   CRC-32C of all other bytes
//	12  flags      u32   bit 0: the agent has its control messages on shared memory
//	16  revision   u64   registrations and deregistrations so far
//	24  removal    u64   revision of the last deregistration, 0 if none
//	32  machine    u64   hash of the machine's boot id, 0 if unknown
//	40  uid        u32
//	44  identity   u32   bytes
//	48  version    u32   bytes
//	52  ranges     u32   count
//	56  blob       u32   bytes
//	60  the identity, the version, the ranges (addr u64, bytes u64, device u32, kind u32), the blob
const (
	metadataMagic  = "KVBX"
	metadataFormat = 1
	metadataHeader = 60
	rangeBytes     = 24

	flagSharedMemoryControl = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// offer is an agent's metadata, unpacked.
type offer struct {
	identity      ports.Identity
	version       string // NIXL's, "" if not known
	sharedControl bool
	revision      uint64
	removal       uint64
	machine       uint64
	uid           uint32
	ranges        []ports.Descriptor
	blob          []byte
}

// marshal is the envelope of the offer.
func (o *offer) marshal() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, metadataHeader+len(o.identity)+len(o.version)+rangeBytes*len(o.ranges)+len(o.blob))
	b = append(b, metadataMagic...)
	b = le.AppendUint32(b, metadataFormat)
	b = le.AppendUint32(b, 0) // the checksum, below
	flags := uint32(0)
	if o.sharedControl {
		flags |= flagSharedMemoryControl
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint64(b, o.revision)
	b = le.AppendUint64(b, o.removal)
	b = le.AppendUint64(b, o.machine)
	b = le.AppendUint32(b, o.uid)
	b = le.AppendUint32(b, uint32(len(o.identity)))
	b = le.AppendUint32(b, uint32(len(o.version)))
	b = le.AppendUint32(b, uint32(len(o.ranges)))
	b = le.AppendUint32(b, uint32(len(o.blob)))
	b = append(b, o.identity...)
	b = append(b, o.version...)
	for _, r := range o.ranges {
		b = le.AppendUint64(b, r.Addr)
		b = le.AppendUint64(b, r.Bytes)
		b = le.AppendUint32(b, r.Place.Device)
		b = le.AppendUint32(b, uint32(r.Place.Kind))
	}
	b = append(b, o.blob...)
	le.PutUint32(b[8:], checksum(b))
	return b
}

// checksum is over everything but the checksum itself.
func checksum(envelope []byte) uint32 {
	return crc32.Update(crc32.Checksum(envelope[:8], castagnoli), castagnoli, envelope[12:])
}

// unmarshal checks and unpacks an envelope. It copies what it keeps. Its errors wrap ports.ErrBadMetadata.
func unmarshal(b []byte) (*offer, error) {
	le := binary.LittleEndian
	bad := func(format string, args ...any) (*offer, error) {
		return nil, fmt.Errorf("%w: %s", ports.ErrBadMetadata, fmt.Sprintf(format, args...))
	}
	switch {
	case len(b) < metadataHeader:
		return bad("%d bytes, want at least %d", len(b), metadataHeader)
	case string(b[:4]) != metadataMagic:
		return bad("it does not begin with %q", metadataMagic)
	case le.Uint32(b[4:]) != metadataFormat:
		return bad("its format is %d, want %d", le.Uint32(b[4:]), metadataFormat)
	case le.Uint32(b[8:]) != checksum(b):
		return bad("its checksum is wrong")
	}
	flags := le.Uint32(b[12:])
	if flags&^flagSharedMemoryControl != 0 {
		return bad("unknown flags %#x", flags)
	}
	o := &offer{
		sharedControl: flags&flagSharedMemoryControl != 0,
		revision:      le.Uint64(b[16:]),
		removal:       le.Uint64(b[24:]),
		machine:       le.Uint64(b[32:]),
		uid:           le.Uint32(b[40:]),
	}
	identity, version, ranges, blob := uint64(le.Uint32(b[44:])), uint64(le.Uint32(b[48:])), uint64(le.Uint32(b[52:])), uint64(le.Uint32(b[56:]))
	if want := metadataHeader + identity + version + ranges*rangeBytes + blob; want != uint64(len(b)) {
		return bad("%d bytes, its lengths add up to %d", len(b), want)
	}
	if o.removal > o.revision {
		return bad("its last removal %d comes after its revision %d", o.removal, o.revision)
	}
	rest := b[metadataHeader:]
	var err error
	if o.identity, err = ports.ParseIdentity(string(rest[:identity])); err != nil {
		return bad("%v", err)
	}
	rest = rest[identity:]
	o.version, rest = string(rest[:version]), rest[version:]
	o.ranges = make([]ports.Descriptor, ranges)
	for i := range o.ranges {
		kind := le.Uint32(rest[20:])
		if kind > uint32(ports.Device) {
			return bad("range %d has the unknown memory kind %d", i, kind)
		}
		r := ports.Descriptor{
			Addr:  le.Uint64(rest),
			Bytes: le.Uint64(rest[8:]),
			Place: ports.Place{Kind: ports.MemoryKind(kind), Device: le.Uint32(rest[16:])},
		}
		if _, ok := r.End(); !ok || r.Bytes == 0 {
			return bad("range %d is empty or does not fit 64 bits", i)
		}
		o.ranges[i], rest = r, rest[rangeBytes:]
	}
	if name, ok := nameInside(rest); ok && name != string(o.identity) {
		return bad("it is %s's and holds NIXL's metadata of %q", o.identity, name)
	}
	o.blob = append([]byte(nil), rest...)
	return o, nil
}

// blobMagic begins NIXL's blobs in every version seen. The agent's name follows: u64 length, bytes.
const blobMagic = "nixlSerDes|Agent"

// nameInside reads whose metadata a blob is, where its format is the known one. Loading another agent's blob could spoil that agent's entry.
func nameInside(blob []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(blob, []byte(blobMagic))
	if !ok || len(rest) < 8 {
		return "", false
	}
	n := binary.LittleEndian.Uint64(rest)
	if n > uint64(len(rest)-8) {
		return "", false
	}
	return string(rest[8 : 8+n]), true
}

// machineID tells machines apart, for the warning about users; 0 if that is not possible.
func machineID() uint64 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(id)
	return h.Sum64()
}
