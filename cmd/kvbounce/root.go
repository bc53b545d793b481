package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
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

var errInterrupted = errors.New("interrupted")

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
	root := a.root(args)
	out := &checkedWriter{w: a.out}
	a.out = out
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, errReported) && !errors.Is(err, out.err) {
		a.fail(err, a.json)
	}
	if out.err != nil {
		a.fail(fmt.Errorf("standard output can't be written: %w", out.err), false)
	}
	var u *usageError
	switch {
	case errors.As(err, &u):
		return exitUsage
	case err != nil || out.err != nil:
		return exitFailed
	}
	return exitOK
}

// checkedWriter keeps the first error of a stream, so that those who print a table need not look.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(b)
	c.err = err
	return n, err
}

// wantsJSON looks for --json in a command line that does not parse.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		value, ok := strings.CutPrefix(arg, "--json=")
		if on, err := strconv.ParseBool(value); arg == "--json" || ok && err == nil && on {
			return true
		}
	}
	return false
}

// root is the command with all its subcommands, for a command line.
func (a *app) root(args []string) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.json {
				return badUsage("command", "say a command; see kvbounce --help")
			}
			return cmd.Help()
		},
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
		a.json = wantsJSON(args)
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

// valueError is how the standard library words a value that does not parse.
var valueError = regexp.MustCompile(`(?s): strconv\.Parse(\w+): parsing ".*": .*$`)

// plainFlagError says what is wrong with a flag in the command's own words.
func plainFlagError(err error) string {
	text := err.Error()
	at := valueError.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	want := map[string]string{"Bool": "want true or false", "Uint": "want a whole number such as 8, from 0 to 18446744073709551615"}[text[at[2]:at[3]]]
	return text[:at[0]] + ", " + cmp.Or(want, "want a whole number such as 8")
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badUsage("arguments", "%s takes no arguments, but got %q; see %s --help", cmd.Name(), strings.Join(args, " "), cmd.CommandPath())
	}
	return nil
}

// joinLines makes one line of several, of which those that belong to one before them are indented.
var joinLines = strings.NewReplacer("\n  ", "; ", "\n", "; ")

// failStop ends the process, as wiring.Params.FailStop of the agents in it, and says what had failed before as well as what is in doubt.
func (a *app) failStop(failed error, r session.Report) {
	if a.json {
		a.fail(errors.Join(failed, errors.New(strings.TrimPrefix(r.String(), "kvbounce: "))), true)
	}
	if failed != nil {
		a.fail(failed, false)
	}
	fmt.Fprintln(a.err, r)
	os.Exit(wiring.ExitFailStop)
}

// interruptible lets SIGINT and SIGTERM end the process at once, with word of it, until the work is done. Workers in processes of their own end with it.
func (a *app) interruptible() (done func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	keep := context.AfterFunc(ctx, func() {
		if a.json {
			a.fail(errInterrupted, true)
		}
		a.fail(errInterrupted, false)
		os.Exit(exitFailed)
	})
	return func() {
		keep()
		stop()
	}
}

// fail prints a failure, as one sentence or as JSON; as a sentence too where standard output takes none. Part of it may be another machine's words.
func (a *app) fail(err error, asJSON bool) {
	// Several errors at once, such as one for each bad setting, are one sentence with several parts.
	message := joinLines.Replace(err.Error())
	type body struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	}
	if asJSON && a.print(struct {
		Error body `json:"error"`
	}{body{fieldOf(err), message}}) == nil {
		return
	}
	fmt.Fprintf(a.err, "kvbounce: %s\n", plain(message))
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
