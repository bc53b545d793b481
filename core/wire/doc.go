// Package wire is wire 3: the bytes of the frames that agents exchange and of the handshake in an AgentDesc (protocol.md, 3 and 4). It knows
// layouts and the rules that can be checked from one message alone; what a message means is core/transport's.
//
// A frame is an envelope (who it is from and for) and exactly one message, which is a 40-byte header and a payload. All integers are little-endian.
//
// # Using it
//
// Every message type has three methods. Check says whether the message can be encoded. Append encodes one that passed Check, onto the caller's buffer. Decode reads
// one whole message into a value that the caller keeps, and reuses its slices: in steady state neither allocates. Decode accepts exactly what Check
// accepts and Append produces: what decodes encodes to the same bytes.
//
// The bytes may come from anybody. A decoder never panics, and compares every count with the bytes that are there before it allocates, so that
// one call allocates little more than the message's own size.
//
// # Header fields by type
//
// A field that a type does not use is 0. "place" is the region and chunk of one chunk: region at least 1, chunk below chunks.
//
//	type       region, chunk             chunks       count           payload
//	WANT       0, 0                      count        chunks, >= 1    oldest, token, endpoint, chunk bytes
//	GRANT      0, 0                      >= 1         credits, >= 1   credits
//	DATA       place                     >= 1         runs, >= 1      index count, runs, indices
//	ACK        place, or 0, 0xFFFFFFFF   >= 1         0               none
//	NACK       place                     >= 1         0               reason, text
//	NACK       0, 0xFFFFFFFF             any          0               reason, text
//	DRAIN      0, 0                      0            0               endpoint
//	DRAIN_ACK  0, 0                      0            0               none
//
// A NACK for a whole request carries any number of chunks because it copies the field from the frame that it answers, which may be a DRAIN or malformed.
package wire
