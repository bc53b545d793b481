package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kvbounce/kvbounce/ports"
)

// AgentDesc is what one agent's application hands to another's, by whatever way they have, so that the second can reach the first.
type AgentDesc struct {
	Identity      ports.Identity
	StartedUnixNS uint64 // wall clock at the agent's start: which of two descriptions of one name is newer
	Engine        string // the engine's name; both sides must use the same
	EngineVersion string
	Metadata      []byte // the engine's
	Bounce        []byte // handshake (core/wire); empty when bounce is off
}

// ErrBadDesc is wrapped by the errors of ParseAgentDesc.
var ErrBadDesc = errors.New("bad agent description")

// The serialized form: magic "KVBA", format u16, identity and engine strings with a u16 length, started_unix_ns u64, metadata and bounce blob with a u32 length, and
// a CRC-32C of all that is before it. Integers are little-endian.
const (
	descMagic  = "KVBA"
	descFormat = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append serializes the description onto dst.
func (d *AgentDesc) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, descMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, descFormat)
	for _, s := range []string{string(d.Identity), d.Engine, d.EngineVersion} {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
	}
	dst = binary.LittleEndian.AppendUint64(dst, d.StartedUnixNS)
	for _, b := range [][]byte{d.Metadata, d.Bounce} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
		dst = append(dst, b...)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseAgentDesc is the inverse of Append. The description's slices alias b. Errors name the field.
func ParseAgentDesc(b []byte) (AgentDesc, error) {
	var d AgentDesc
	fail := func(field, what string) (AgentDesc, error) {
		return AgentDesc{}, fmt.Errorf("%w: %s %s", ErrBadDesc, field, what)
	}
	if len(b) < len(descMagic)+2+4 || string(b[:len(descMagic)]) != descMagic {
		return fail("magic", "is not "+descMagic)
	}
	if got := binary.LittleEndian.Uint16(b[4:]); got != descFormat {
		return fail("format", fmt.Sprintf("is %d, want %d", got, descFormat))
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return fail("checksum", "does not match: the description was damaged on its way")
	}
	var id, engine, version, started []byte
	rest := body[6:]
	for _, f := range []struct {
		name  string
		width int // of its length; 0: the field itself is a u64
		to    *[]byte
	}{
		{"identity", 2, &id}, {"engine", 2, &engine}, {"engine_version", 2, &version}, {"started_unix_ns", 0, &started}, {"engine_metadata", 4, &d.Metadata}, {"bounce", 4, &d.Bounce},
	} {
		var ok bool
		if *f.to, rest, ok = cutField(rest, f.width); !ok {
			return fail(f.name, "is cut short")
		}
	}
	var err error
	if d.Identity, err = ports.ParseIdentity(string(id)); err != nil {
		return fail("identity", err.Error())
	}
	d.Engine, d.EngineVersion, d.StartedUnixNS = string(engine), string(version), binary.LittleEndian.Uint64(started)
	if len(rest) > 0 {
		return fail("bounce", fmt.Sprintf("is followed by %d bytes too many", len(rest)))
	}
	return d, nil
}

// cutField cuts the bytes off that a length of that width announces, or a u64.
func cutField(b []byte, width int) (field, rest []byte, ok bool) {
	n := uint64(8)
	switch {
	case len(b) < width:
		return nil, nil, false
	case width == 2:
		n = uint64(binary.LittleEndian.Uint16(b))
	case width == 4:
		n = uint64(binary.LittleEndian.Uint32(b))
	}
	if b = b[width:]; uint64(len(b)) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
