package nixl

/*
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"
)

// NIXL and UCX read their settings from the process's C environment when they are loaded. What the user set there is respected, but for the
// variables in forbidden.

// defaults are set before the library is opened (nixl.md, 7 and rule 9), each unless the user set it or the variable in unless.
var defaults = []struct{ name, value, unless string }{
	// UCX would patch eight functions of libc, which takes 0.4 s, for caches that NIXL does not use: it registers memory explicitly.
	{name: "UCX_MEM_EVENTS", value: "n", unless: "UCX_MEM_MMAP_HOOK_MODE"},
	// UCX would install a handler for SIGHUP that runs on Go's small stacks.
	{name: "UCX_DEBUG_SIGNO", value: "0"},
	// UCX would log to standard output, which belongs to the program.
	{name: "UCX_LOG_FILE", value: "stderr"},
	{name: "UCX_WARN_UNUSED_ENV_VARS", value: "n"},
}

// sharedMemoryControlIsOn reads what UCX will read: whether the user put NIXL's control messages and notifications between processes of one machine on shared memory instead of TCP's loopback. The adapter
// does not, though it makes a notification about 8 µs faster: both sides must have it, it does not work between users, and UCX 1.23 crashes the process that receives a peer's first message after that peer
// has ended (nixl.md, 10).
func sharedMemoryControlIsOn(value func(string) string) bool {
	return slices.ContainsFunc([]string{"UCX_POSIX_ERROR_HANDLING", "UCX_MM_ERROR_HANDLING"}, func(name string) bool {
		return slices.Contains([]string{"y", "yes", "on", "1"}, strings.ToLower(value(name)))
	})
}

// forbidden are removed: the first three make NIXL wait for servers that it was told of, for more than a minute when one is gone; the last makes writes 10 to 20 times slower.
var forbidden = []string{"NIXL_ETCD_ENDPOINTS", "NIXL_ETCD_NAMESPACE", "NIXL_TCPSTORE_ENDPOINT", "UCX_RNDV_THRESH"}

// environment is what the adapter changes, and nothing else.
type environment struct {
	set   map[string]string
	unset []string
}

// planEnvironment decides what to change, given what the user set. It changes nothing.
func planEnvironment(lookup func(string) bool) environment {
	env := environment{set: make(map[string]string)}
	for _, d := range defaults {
		if !lookup(d.name) && (d.unless == "" || !lookup(d.unless)) {
			env.set[d.name] = d.value
		}
	}
	for _, name := range forbidden {
		if lookup(name) {
			env.unset = append(env.unset, name)
		}
	}
	return env
}

// apply changes the C environment, where NIXL and UCX read it. Go's own copy (os.Getenv) stays as it was.
func (env environment) apply() error {
	for _, name := range slices.Sorted(maps.Keys(env.set)) {
		if err := setenv(name, env.set[name]); err != nil {
			return err
		}
	}
	for _, name := range env.unset {
		cname := C.CString(name)
		C.unsetenv(cname)
		C.free(unsafe.Pointer(cname))
	}
	return nil
}

func setenv(name, value string) error {
	cname, cvalue := C.CString(name), C.CString(value)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(unsafe.Pointer(cvalue))
	if code, err := C.setenv(cname, cvalue, 1); code != 0 {
		return fmt.Errorf("nixl: setting %q in the environment: %w", name, err)
	}
	return nil
}

// inEnvironment reports whether the C environment has a variable, be it empty.
func inEnvironment(name string) bool {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return C.getenv(cname) != nil
}

// environmentValue is the variable's value in the C environment, or "".
func environmentValue(name string) string {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return C.GoString(C.getenv(cname))
}
