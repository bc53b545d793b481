package transport

import (
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/list"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// chunkState is how far one chunk of a request in progress has come. A credit may come in any state before writing.
//
//	unplanned -> planned -> gathering -> gathered -> writing -> written -> acked
//	                ^------- taken ---------'
type chunkState uint8

const (
	chunkUnplanned chunkState = iota // its runs have not come from the submitter
	chunkPlanned                     // waits for staging and a copy context
	chunkGathering                   // a gather may be running
	chunkGathered                    // its bytes stand in staging; waits for a credit
	chunkWriting                     // a write may be running
	chunkWritten                     // the write's success is latched and DATA was sent
	chunkAcked                       // the receiver scattered it
	chunkOver                        // the request failed; nothing more is started for it
)

// chunk is one chunk of a request at the sender.
type chunk struct {
	req     *request
	index   uint32
	state   chunkState
	plan    *plan.Chunk
	credit  wire.Credit // Region 0: none
	staging *drain.Hold // nil: none
	held    drain.Hold  // staging's memory
	gather  ports.Event
	write   ports.Transfer
	doubted bool // the write failed without evidence
	ahead   bool // counted as staging ahead of its credit
	ran     bool // a gather was launched before: launching it again is no progress

	node list.Node[chunk] // in one of the transport's queues
}

func (c *chunk) credited() bool { return c.credit.Region != 0 }
