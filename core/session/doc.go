// Package session retires engine requests: it says when the memory of all that a request sent and received may be reused, and ends the process when that can't be known in bounded time (protocol.md, 8).
//
// An engine request has a send side, any number of transfers, and a receive side, any number of windows with any number of writers each. Neither side is retired before both can be. What is asked for is
// the application's memory alone: arena blocks in doubt are kept and shown elsewhere, and stop nobody.
//
// Every part has a deadline that starts when the part ended logically and can't be set again. Memory in doubt beyond it is fatal: nothing proves that it may be reused, and a process that goes on would
// reuse it some day. A part whose peer was fenced is waited for as long as the settle delay runs, since that ends by itself.
package session
