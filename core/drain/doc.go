// Package drain is the ownership ledger: it knows what may still be touched and what proved that it can't be, and it alone gives arena
// blocks back.
//
// A transfer that failed, was cancelled or timed out is not over: its gather may be running, its write may land minutes later. So every
// access to memory is opened in the ledger before the call that may start it, and closed only by a piece of Evidence that the table in this package accepts for
// that kind of access (protocol.md, 7). Everything else is doubt: the block stays allocated, where the scheduler can't grant it again, until evidence comes.
//
// Evidence comes from the transport's events; judging it is this package's task alone. Asking it to close an access by something that is not
// evidence is a bug in the caller and panics.
package drain
