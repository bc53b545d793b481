package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/wiring/doctor"
)

func (a *app) doctor() *cobra.Command {
	var attach string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine has for kvbounce, and what to do about what is missing",
		Long: `Show what this machine has for kvbounce, and what to do about what is missing.

A child process tries the engine: it starts two agents over NIXL and moves some pages between them.
Exit code 0: everything that moving host memory needs is there. 1: something is not.

With --attach it looks at a running agent instead, at its debug endpoint (the setting DEBUG_LISTEN): what is
in doubt, because of which peer, and what to do about it. Exit code 0: the agent answered. 1: it did not.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("attach") {
				return a.attach(cmd.Context(), attach)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			r := doctor.Examine(cmd.Context(), doctor.Options{Probe: []string{self, probeCommand}, Environ: os.Environ()})
			if a.json {
				err = a.print(r)
			} else {
				printReport(a.out, r)
			}
			if err == nil && !r.OK {
				return errReported
			}
			return err
		},
	}
	cmd.Flags().StringVar(&attach, "attach", "", "the debug endpoint of an agent to look at: unix:PATH or HOST:PORT")
	return cmd
}

// probeCommand is the hidden subcommand that doctor starts.
const probeCommand = "probe"

func (a *app) probe() *cobra.Command {
	return &cobra.Command{
		Use:    probeCommand,
		Short:  "Try the engine; started by doctor",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(*cobra.Command, []string) error { return a.print(doctor.Probe(a.log)) },
	}
}

func printReport(out io.Writer, r doctor.Report) {
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	indent := strings.Repeat(" ", len("FAIL  ")+width+2)
	var failed []string
	for _, c := range r.Checks {
		state := "ok"
		switch {
		case !c.OK && c.Required:
			state, failed = "FAIL", append(failed, c.Name)
		case !c.OK:
			state = "-"
		}
		said := []string{c.Found}
		if c.Found == "" || c.Detail == "" {
			said = []string{c.Found + c.Detail}
		} else {
			said = append(said, c.Detail)
		}
		if c.Remedy != "" {
			said = append(said, "> "+c.Remedy)
		}
		for i, text := range said {
			for j, line := range wrap(text, 110-len(indent)) {
				if i == 0 && j == 0 {
					fmt.Fprintf(out, "%-4s  %-*s  %s\n", state, width, c.Name, line)
				} else {
					fmt.Fprintf(out, "%s%s\n", indent, line)
				}
			}
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(out, "\nHost memory can't be moved yet: %s.\n", strings.Join(failed, ", "))
		return
	}
	fmt.Fprintf(out, "\nEverything that moving host memory needs is here.\n")
}

// wrap breaks text between words into lines of at most width bytes, where words allow it.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
