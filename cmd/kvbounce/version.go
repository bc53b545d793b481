package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/wiring/doctor"
)

// versionJSON says what this program is.
type versionJSON struct {
	Version string `json:"version"` // the module's, "(devel)" for one built from a working tree without a version
	Commit  string `json:"commit"`  // "" when it was not built from a repository; "+dirty" follows when files were changed
	Wire    int    `json:"wire"`
	Go      string `json:"go"`
	NIXL    string `json:"nixl"` // of the library that an agent would load; "" when there is none
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program, of the wire, of Go and of NIXL",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			build, _ := debug.ReadBuildInfo() // nil when there is none
			v := newVersion(build, doctor.NIXLVersion())
			if a.json {
				return a.print(v)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, row := range [][2]string{{"kvbounce", v.Version}, {"commit", v.Commit}, {"wire", fmt.Sprint(v.Wire)}, {"go", v.Go}, {"nixl", v.NIXL}} {
				if row[1] == "" {
					row[1] = "none"
				}
				fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
			}
			return w.Flush()
		},
	}
}

func newVersion(build *debug.BuildInfo, nixl string) versionJSON {
	v := versionJSON{Version: "unknown", Wire: wire.Version, Go: runtime.Version(), NIXL: nixl}
	if build == nil {
		return v
	}
	v.Version = build.Main.Version
	modified := false
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		v.Commit += "+dirty"
	}
	return v
}
