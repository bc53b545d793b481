// Package transport is kvbounce's protocol: one state machine that sends requests to peers and serves theirs.
//
// A Transport is owned by one goroutine, the reactor, which calls Poll again and again. Poll reads the control channel, asks the engine and the copy
// device for completions, advances requests (sender.go) and flows (receiver.go), sends frames and says when it wants to be called next. It never
// blocks, and knows of time what its caller and ports.Clock tell it: what a production runner and a simulator drive is the same code.
//
// Submitters live in other goroutines. They hand commands to the reactor through a bounded queue (inbox.go) and read a Handle's atomics.
//
// What may still be touched, and what proved that it can't be, is core/drain's to say; no code here gives arena memory back.
package transport
