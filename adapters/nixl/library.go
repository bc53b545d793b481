package nixl

/*
#include <stdlib.h>
#include "capi.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// loaded is the one copy of NIXL in this process. A second copy would silently bind to the first one's inner libraries (nixl.md, 7), and it stays
// loaded for ever, since its threads outlive the agents.
var loaded struct {
	sync.Mutex
	ok       bool
	info     Info
	since1_5 bool
}

// library is what the engine needs to know of the loaded library.
type library struct {
	info Info
	// refusesBeforePosting says that a post that answers "not found" was refused before the backend was asked, which is proof that nothing was posted.
	refusesBeforePosting bool
	// sharedControl says that the user's environment puts control messages on shared memory.
	sharedControl bool
}

// load finds and opens the library, or answers the one that is open already.
func load() (library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if !loaded.ok {
		if err := open(); err != nil {
			return library{}, err
		}
	}
	return library{info: loaded.info, refusesBeforePosting: loaded.since1_5, sharedControl: sharedMemoryControlIsOn(environmentValue)}, nil
}

// open finds and opens the library. The caller holds loaded.
func open() error {
	info, err := Find()
	if err != nil {
		return err
	}
	if err := planEnvironment(inEnvironment).apply(); err != nil {
		return err
	}
	path := C.CString(info.Library)
	defer C.free(unsafe.Pointer(path))
	var since1_5 C.int
	if text := C.kvn_load(path, &since1_5); text != nil {
		defer C.free(unsafe.Pointer(text))
		return fmt.Errorf("nixl: %s cannot be used: %s", info.Library, C.GoString(text))
	}
	loaded.ok, loaded.info, loaded.since1_5 = true, info, since1_5 != 0
	return nil
}
