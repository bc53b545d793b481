package nixl

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "capi.h"
*/
import "C"

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/kvbounce/kvbounce/ports"
)

// agent is a NIXL agent with its UCX backend. Whoever calls it must be the only one to do so at that time; see Engine.owner.
type agent struct {
	c *C.kvn_agent
}

// request is a transfer request of NIXL's. It must not be used after release.
type request *C.kvn_request

// peerName is a peer's name as NIXL's calls take it. It lives outside the Go heap until freed.
type peerName *C.char

// operation is the direction of a transfer, in NIXL's numbers.
type operation int

const (
	opRead  operation = C.KVN_READ
	opWrite operation = C.KVN_WRITE
)

func openAgent(name string) (*agent, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var a agent
	var step *C.char
	if code := int(C.kvn_open(cname, &a.c, &step)); code != codeSuccess {
		return nil, &Error{Op: C.GoString(step), Code: code, Text: openHint}
	}
	return &a, nil
}

// openHint names the causes that were seen (nixl.md, 7); NIXL itself logs some of them to standard error and some nowhere.
const openHint = "known causes: UCX_TLS leaves no transport for control messages, no network interface is up, the home folder cannot be read, or the UCX plugin is missing"

// close ends the agent. Requests that still exist must not be touched afterwards.
func (a *agent) close() error {
	err := check("destroy_agent", int(C.kvn_close(a.c)))
	a.c = nil
	return err
}

// cRanges is the slice as C reads it: kvn_range and ports.Descriptor have the same layout, which capi.c and transfer_test.go check.
func cRanges(ranges []ports.Descriptor) *C.kvn_range {
	return (*C.kvn_range)(unsafe.Pointer(unsafe.SliceData(ranges)))
}

// register tells NIXL of ranges of one kind.
func (a *agent) register(ranges []ports.Descriptor) error {
	return check("register_mem", int(C.kvn_register(a.c, cRanges(ranges), C.size_t(len(ranges)))))
}

func (a *agent) deregister(ranges []ports.Descriptor) error {
	return check("deregister_mem", int(C.kvn_deregister(a.c, cRanges(ranges), C.size_t(len(ranges)))))
}

// metadata is NIXL's own blob: of everything, or of the connection alone.
func (a *agent) metadata(connectionOnly bool) ([]byte, error) {
	only, op := C.int(0), "get_local_md"
	if connectionOnly {
		only, op = 1, "get_local_partial_md"
	}
	var data unsafe.Pointer
	var n C.size_t
	if err := check(op, int(C.kvn_metadata(a.c, only, &data, &n))); err != nil {
		return nil, err
	}
	defer C.free(data)
	return append([]byte(nil), unsafe.Slice((*byte)(data), int(n))...), nil
}

// connect loads a peer's blob and says whose it was.
func (a *agent) connect(blob []byte) (name string, err error) {
	var cname *C.char
	code := int(C.kvn_connect(a.c, unsafe.Pointer(unsafe.SliceData(blob)), C.size_t(len(blob)), &cname))
	if code != codeSuccess {
		return "", &Error{Op: "load_remote_md", Code: code}
	}
	defer C.free(unsafe.Pointer(cname))
	return C.GoString(cname), nil
}

// forget drops a peer's metadata. That it was not there is no error.
func (a *agent) forget(peer peerName) error {
	code := int(C.kvn_forget(a.c, peer))
	if code == codeNotFound {
		return nil
	}
	return check("invalidate_remote_md", code)
}

// create makes a request for local[i] and remote[i]; both lists are copied. It posts nothing.
func (a *agent) create(op operation, peer peerName, local, remote []ports.Descriptor) (request, int) {
	var r *C.kvn_request
	code := C.kvn_create(a.c, C.int(op), peer, cRanges(local), cRanges(remote), C.size_t(len(local)), &r)
	return request(r), int(code)
}

func (a *agent) post(r request) int   { return int(C.kvn_post(a.c, r)) }
func (a *agent) status(r request) int { return int(C.kvn_status(a.c, r)) }

// release frees a request that is known to have ended. It must never be called on one that may run: NIXL would free it and let it run on (nixl.md, 3).
func (a *agent) release(r request) error {
	return check("release_xfer_req", int(C.kvn_release(a.c, r)))
}

func (a *agent) notify(peer peerName, message []byte) int {
	return int(C.kvn_notify(a.c, peer, unsafe.Pointer(unsafe.SliceData(message)), C.size_t(len(message))))
}

// receive drives the agent once and hands over what arrived, each message in memory that belongs to the callee.
func (a *agent) receive(take func(from string, message []byte)) error {
	var data *C.uint8_t
	var n C.size_t
	return received(C.kvn_receive(a.c, &data, &n), data, n, take)
}

// rest drives the agent every so often, so many times, or until something arrived, which it hands over as receive does, or the bell is rung.
func (a *agent) rest(b *bell, every time.Duration, turns int, take func(from string, message []byte)) error {
	var data *C.uint8_t
	var n C.size_t
	return received(C.kvn_rest(a.c, &b.c, C.int64_t(every), C.int(turns), &data, &n), data, n, take)
}

func received(code C.int, data *C.uint8_t, n C.size_t, take func(from string, message []byte)) error {
	if code != C.KVN_SUCCESS {
		return &Error{Op: "get_notifs", Code: int(code)}
	}
	if n > 0 {
		unpackReceived(unsafe.Slice((*byte)(data), int(n)), take)
	}
	return nil
}

// unpackReceived reads what kvn_receive packs: for each sender the length of the name, the number of messages, the name, and each message with its length.
func unpackReceived(packed []byte, take func(from string, message []byte)) {
	// Two names that differ only after a NUL look alike to the C API, which then answers the first one's messages twice.
	var seen map[string]bool
	for len(packed) > 0 {
		nameBytes := binary.NativeEndian.Uint32(packed)
		messages := binary.NativeEndian.Uint32(packed[4:])
		name := string(packed[8 : 8+nameBytes])
		packed = packed[8+nameBytes:]
		repeated := seen[name]
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[name] = true
		for range messages {
			n := binary.NativeEndian.Uint32(packed)
			if !repeated {
				take(name, append(make([]byte, 0, n), packed[4:4+n]...))
			}
			packed = packed[4+n:]
		}
	}
}

func newPeerName(id ports.Identity) peerName { return peerName(C.CString(string(id))) }

func freePeerName(n peerName) { C.free(unsafe.Pointer(n)) }

// preciseSleep makes the calling thread's timed waits end on time.
func preciseSleep() { C.kvn_precise_sleep() }
