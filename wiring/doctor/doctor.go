// Package doctor looks at what a machine has for kvbounce, and says what to do about what is missing.
//
// It loads nothing that might hang or end the process: libraries are looked at as files, and the engine is tried by a child process (see Probe).
package doctor

import (
	"context"
	"os"
)

// Check is one thing that was looked at.
type Check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"` // for moving host memory over NIXL
	Found    string `json:"found"`    // what is there; "" for nothing
	Detail   string `json:"detail"`   // where, or what was searched, or what follows from it
	Remedy   string `json:"remedy"`   // what to do about what is missing; "" when OK
}

// Report is the whole examination.
type Report struct {
	Checks []Check `json:"checks"`
	OK     bool    `json:"ok"` // everything that is required is OK
}

// Options say what to examine.
type Options struct {
	// Probe is the command line of a child process that runs Probe and prints its result as JSON on standard output.
	Probe []string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
}

// Examine looks at this machine. It takes a fraction of a second, and at most half a minute when the engine hangs.
func Examine(ctx context.Context, o Options) Report {
	return machine{root: "/", getenv: os.Getenv}.examine(ctx, o)
}

func (m machine) examine(ctx context.Context, o Options) Report {
	l := m.loader()
	nixl, library := checkNIXL()
	modules := findModules(l, library)
	checks := []Check{nixl}
	if nixl.OK {
		checks = append(checks, checkPlugins(library), checkTransports(modules), checkEngine(ctx, o, probeLimit))
	} else {
		checks = append(checks, notTried("plugins"), notTried("engine"))
	}
	checks = append(checks, checkZMQ(), checkCurve(), checkSettings(o.Environ), m.checkHugePages(), m.checkProcessCopy(copyWithin()), m.checkRDMA(), m.checkDriver(l))
	if nixl.OK {
		checks = append(checks, m.checkCUDALibraries(l, modules))
	}
	checks = append(checks, m.checkCUDABuild())
	r := Report{Checks: checks, OK: true}
	for _, c := range checks {
		r.OK = r.OK && (c.OK || !c.Required)
	}
	return r
}

// notTried is a required check that makes no sense without a library.
func notTried(name string) Check {
	return Check{Name: name, Required: true, Detail: "not tried, since there is no NIXL", Remedy: "install NIXL first"}
}
