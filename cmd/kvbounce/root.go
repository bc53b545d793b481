package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/wiring"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the work failed
	exitUsage  = 2 // the command line is wrong
)

// fieldError is a failure that names what is wrong.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// usageError is a command line that is wrong.
type usageError struct{ fieldError }

// badUsage says what is wrong with a flag or an argument.
func badUsage(field, format string, args ...any) error {
	return &usageError{fieldError{field, fmt.Errorf(format, args...)}}
}

// errReported is the failure of work whose result is printed and says everything.
var errReported = errors.New("the result says what failed")

// app is what subcommands share.
type app struct {
	streams
	json    bool
	verbose bool
	log     *slog.Logger
	// start starts the two workers of demo and bench. Tests put workers with faults there.
	start func(demoFlags, config.Config) ([]party, error)
}

func newApp(s streams) *app {
	a := &app{streams: s}
	a.start = a.startParties
	return a
}

// run executes a command line and returns the exit code.
func run(args []string, s streams) int { return newApp(s).run(args) }

func (a *app) run(args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	a.fail(err, wantsJSON(args))
	var u *usageError
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitFailed
}

// wantsJSON looks for --json where the command line may not even parse.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "kvbounce",
		Short:         "Move scattered KV-cache blocks between machines fast, and never corrupt them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badUsage("command", "there is no command %q; see kvbounce --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(*cobra.Command, []string) {
			level := slog.LevelWarn
			if a.verbose {
				level = slog.LevelDebug
			}
			a.log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON object on standard output")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log more, to standard error")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return badUsage("flags", "%s; see %s --help", plainFlagError(err), cmd.CommandPath())
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return badUsage("command", "there is no command %q; see kvbounce --help", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	})
	build, _ := debug.ReadBuildInfo() // nil when there is none
	root.Version = newVersion(build, "").Version
	root.AddCommand(a.demo(), a.bench(), a.recv(), a.send(), a.worker(), a.plan(), a.wire(), a.config(), a.keygen(), a.doctor(), a.probe(), a.version(), a.sim())
	return root
}

// numberError is how the standard library words a number that is none.
var numberError = regexp.MustCompile(`: strconv\.Parse\w+: parsing ".*": .*$`)

// plainFlagError says what is wrong with a flag in the command's own words.
func plainFlagError(err error) string {
	return numberError.ReplaceAllString(err.Error(), ", want a whole number in its range")
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badUsage("arguments", "%s takes no arguments, but got %q; see %s --help", cmd.Name(), strings.Join(args, " "), cmd.CommandPath())
	}
	return nil
}

// fail prints a failure, as one sentence or as JSON. Part of it may be another machine's words.
func (a *app) fail(err error, asJSON bool) {
	// Several errors at once, such as one for each bad setting, are one sentence with several parts.
	message := strings.ReplaceAll(err.Error(), "\n", "; ")
	if !asJSON {
		fmt.Fprintf(a.err, "kvbounce: %s\n", plain(message))
		return
	}
	type body struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	}
	_ = a.print(struct {
		Error body `json:"error"`
	}{body{fieldOf(err), message}})
}

// fieldOf is the field that an error is about, or "".
func fieldOf(err error) string {
	var u *usageError
	var f *fieldError
	var c *config.Error
	switch {
	case errors.As(err, &u):
		return u.field
	case errors.As(err, &f):
		return f.field
	case errors.As(err, &c):
		return c.Variable
	case errors.Is(err, wiring.ErrEngine):
		return "engine"
	case errors.Is(err, wiring.ErrControl):
		return "control"
	}
	return ""
}

// print writes one JSON object on standard output.
func (a *app) print(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
