// Package credit decides who gets the arena next (protocol.md, 6). One arena serves receive grants, where peers write, and staging, where this side gathers before
// it writes. Arena places blocks; Scheduler chooses the flow that gets the next grant.
//
// # Zones
//
// B is the smallest power of two that is at least the chunk limit and the granule. The arena is seen as zones: aligned blocks of B. A block of at most B bytes
// lies inside one zone, and an empty zone always holds one. One zone is the reserve of staging: no grant is placed in it. Another is the reserve of grants: no staging is
// placed in it. The other zones, and what is left of the arena beyond its last whole zone, are shared.
//
// Each purpose uses its own reserve first, since that space is of no use to the other; then staging goes to the lowest fitting addresses and grants to the highest.
// Staging's reserve begins as the lowest zone, the grants' as the highest, so the two purposes meet in the middle.
//
// # Why it does not deadlock
//
// Take agents that send to each other with every arena full. What is the callers' part of the argument is marked "caller".
//
//  1. A write under way, a gather and a scatter wait for the engine and a copy context alone, and end.
//  2. A chunk with a credit and gathered staging is written; its staging is then free, its DATA leaves, the peer scatters, and its region is free.
//  3. A chunk with a credit but no staging waits for staging only. The staging reserve holds staging alone. Each block in it belongs to a chunk with a credit,
//     which by 2 ends by itself, or to one that has none: then its gather ends by 1, and the chunk with a credit may take it (caller: staging of a chunk without
//     credit is a cache; it is given up to one that has a credit, and nothing is gathered ahead while a chunk with a credit waits). So the
//     reserve empties, and then holds the chunk, whatever the grants do.
//  4. A chunk that waits for its grant: the grants' reserve holds grants alone, and each of them belongs to a chunk with a credit at some peer, which ends by 3 there and 2. So
//     the reserve empties, and then holds the chunk, whatever staging does.
//
// Grants wait for credited chunks, these for staging, and staging for nothing that waits: there is no circle, and some chunk always moves. That none is left behind for
// ever by smaller ones is the Scheduler's part.
//
// # Retained blocks
//
// A block in doubt stays allocated until evidence comes, perhaps for ever, so its zone can't be a reserve: another zone without a retained block becomes it, the one
// with the fewest blocks of the other purpose. Those that are there leave by themselves: a grant by 4; staging with a credit by 2; staging without one is in the way
// (InTheWay) and must be given up (caller), or two such agents could wait for each other's credits. With one clean zone left staging gets it. When no zone is left for
// either, Room is false and new work must be refused; blocks are still placed wherever they fit.
//
// One case is left to request_timeout: when agents that exchange grants lose the staging reserve at the same time, each through its own fault, and the
// new reserves are full of grants to each other, no staging of up to B bytes is certain until one of these requests fails and drains.
package credit
