package wire_test

import (
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The messages of the golden files.

const sampleEndpoint = "tcp://10.0.0.1:5555"

func sampleWant() *wire.Want {
	return &wire.Want{Request: 7, Oldest: 5, Token: 0x1122334455667788, Endpoint: []byte(sampleEndpoint), ChunkBytes: []uint32{40 << 20, 1}}
}

func sampleBareWant() *wire.Want {
	return &wire.Want{Request: 1, Oldest: 1, ChunkBytes: []uint32{1}}
}

func sampleGrant() *wire.Grant {
	return &wire.Grant{Request: 7, Chunks: 3, Credits: []wire.Credit{
		{Addr: 0x7f0000100000, Length: 40 << 20, Device: 1, Region: 901, Chunk: 2},
		{Addr: 0x7f0004000000, Length: 4096, Device: 1, Region: 902, Chunk: 0},
	}}
}

func sampleData() *wire.Data {
	return &wire.Data{Request: 7, Region: 901, Chunk: 2, Chunks: 3, Runs: ports.Runs{
		Runs: []ports.Run{
			{Offset: 0, Addr: 0x7f1000000000, Stride: 0, Piece: 65536, Pieces: 1, Step: 0, Table: wire.NoTable},
			{Offset: 65536, Addr: 0x7f1000200000, Stride: -8192, Piece: 4096, Pieces: 16, Step: 4096, Table: wire.NoTable},
			{Offset: 131072, Addr: 0x7f2000000000, Stride: 16384, Piece: 512, Pieces: 3, Step: 1024, Table: 1},
		},
		Index: []uint32{0, 17, 3, 0xFFFFFFFF},
	}}
}

func sampleAck() *wire.Ack { return &wire.Ack{Request: 7, Region: 901, Chunk: 2, Chunks: 3} }

func sampleQueued() *wire.Ack { return &wire.Ack{Request: 7, Chunk: wire.WholeRequest, Chunks: 3} }

func sampleNack() *wire.Nack {
	return &wire.Nack{Request: 7, Chunk: wire.WholeRequest, Chunks: 3, Reason: wire.ReasonReceiveWindow, Text: "no such window: «7»"}
}

func sampleChunkNack() *wire.Nack {
	return &wire.Nack{Request: 7, Region: 901, Chunk: 2, Chunks: 3, Reason: 4711}
}

func sampleDrainNack() *wire.Nack {
	return &wire.Nack{Request: 7, Chunk: wire.WholeRequest, Reason: wire.ReasonScatterFailed}
}

func sampleDrain() *wire.Drain { return &wire.Drain{Request: 7, Endpoint: []byte(sampleEndpoint)} }

func sampleBareDrain() *wire.Drain { return &wire.Drain{Request: 7} }

func sampleDrainAck() *wire.DrainAck { return &wire.DrainAck{Request: 1<<64 - 1} }

func samples() []wire.Message {
	return []wire.Message{
		sampleWant(), sampleBareWant(), sampleGrant(), sampleData(), sampleAck(), sampleQueued(), sampleNack(), sampleChunkNack(), sampleDrainNack(),
		sampleDrain(), sampleBareDrain(), sampleDrainAck(),
	}
}

func sampleFrame() *wire.Frame {
	return &wire.Frame{From: "prefill/0#00000000deadbeef", To: "décode#fedcba9876543210", Message: &wire.DrainAck{Request: 7}}
}

func sampleHandshake() *wire.Handshake {
	return &wire.Handshake{
		Wire: wire.Version, Control: ports.ControlZMQ, Ownership: true, TokenRequired: true, DeviceArena: true,
		Incarnation: 0xfedcba9876543210, ArenaUsable: 512 << 20, MaxChunk: 40 << 20, RequestTimeout: 30e9, Endpoint: []byte(sampleEndpoint),
	}
}

func sampleOtherHandshake() *wire.Handshake {
	return &wire.Handshake{Wire: 4, Control: 200, Incarnation: 1, RequestTimeout: 4294967295e6}
}
