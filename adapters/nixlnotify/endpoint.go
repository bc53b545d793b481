package nixlnotify

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kvbounce/kvbounce/ports"
)

// checksumBytes is the length of the CRC-32C that begins an endpoint; the connection's metadata follows (protocol.md, 3).
const checksumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendEndpoint is the endpoint of an engine with this metadata.
func appendEndpoint(b, metadata []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(metadata, castagnoli))
	return append(b, metadata...)
}

// parseEndpoint is the metadata in an endpoint, not copied. Its errors wrap ports.ErrBadMetadata.
func parseEndpoint(endpoint []byte) (metadata []byte, err error) {
	switch {
	case len(endpoint) > ports.MaxEndpointBytes:
		return nil, fmt.Errorf("%w: the endpoint has %d bytes, want at most %d", ports.ErrBadMetadata, len(endpoint), ports.MaxEndpointBytes)
	case len(endpoint) <= checksumBytes:
		return nil, fmt.Errorf("%w: the endpoint has %d bytes, want more than %d", ports.ErrBadMetadata, len(endpoint), checksumBytes)
	}
	metadata = endpoint[checksumBytes:]
	if binary.LittleEndian.Uint32(endpoint) != crc32.Checksum(metadata, castagnoli) {
		return nil, fmt.Errorf("%w: the endpoint's checksum is wrong", ports.ErrBadMetadata)
	}
	return metadata, nil
}
