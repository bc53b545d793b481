package nixl

/*
#include <stdlib.h>
#include "capi.h"
*/
import "C"

import (
	"errors"
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
	features int
	env      map[string]string // as it was set for the library, which reads it once
	asked    bool              // Config.SharedMemoryControl
}

// library is what the engine needs to know of the loaded library.
type library struct {
	info Info
	// refusesBeforePosting says that a post that answers "not found" was refused before the backend was asked, which is proof that nothing was posted.
	refusesBeforePosting bool
	// sharedControl says that shared memory carries control messages, by Config or by the user's environment.
	sharedControl bool
}

// load finds and opens the library, or answers the one that is open already.
func load(cfg Config) (library, error) {
	loaded.Lock()
	defer loaded.Unlock()

	if loaded.ok {
		return reuse(cfg)
	}
	info, err := Find(cfg.Library)
	if err != nil {
		return library{}, err
	}
	env := planEnvironment(inEnvironment, cfg.SharedMemoryControl, cfg.Env)
	if err := env.apply(); err != nil {
		return library{}, err
	}
	path := C.CString(info.Library)
	defer C.free(unsafe.Pointer(path))
	var features C.int
	if text := C.kvn_load(path, &features); text != nil {
		defer C.free(unsafe.Pointer(text))
		return library{}, fmt.Errorf("nixl: %s cannot be used: %s", info.Library, C.GoString(text))
	}
	loaded.ok, loaded.features, loaded.env, loaded.asked = true, int(features), env.set, cfg.SharedMemoryControl
	loaded.info = info
	loaded.info.Features = featureText(loaded.features)
	return current(), nil
}

// reuse answers the open library if it is the one that the settings ask for.
func reuse(cfg Config) (library, error) {
	if cfg.Library != "" {
		info, err := Find(cfg.Library)
		if err != nil {
			return library{}, err
		}
		if info.Library != loaded.info.Library {
			return library{}, fmt.Errorf("nixl: this process has loaded %s and cannot use %s too: two copies of NIXL mix up", loaded.info.Library, info.Library)
		}
	}
	if loaded.asked != cfg.SharedMemoryControl {
		return library{}, errors.New("nixl: SharedMemoryControl must be the same for all engines of a process: NIXL is loaded and has read its environment")
	}
	for name, value := range cfg.Env {
		if loaded.env[name] != value {
			return library{}, fmt.Errorf("nixl: %s=%s comes too late: NIXL is loaded and has read its environment", name, value)
		}
	}
	return current(), nil
}

func current() library {
	info := loaded.info
	return library{info: info, refusesBeforePosting: loaded.features&C.KVN_SINCE_1_5 != 0, sharedControl: sharedMemoryControlIsOn(environmentValue)}
}

func featureText(features int) string {
	switch {
	case features&C.KVN_SINCE_1_5 != 0:
		return "1.5 or newer"
	case features&C.KVN_AFTER_1_4 != 0:
		return "newer than 1.4.0"
	}
	return "1.4.0 or older"
}

// Inspect finds and loads the library, as New would, and says what it is. The error of a library that is missing or unfit says what to do.
func Inspect(cfg Config) (Info, error) {
	lib, err := load(cfg)
	return lib.info, err
}
