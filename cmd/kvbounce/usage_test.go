package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What users get wrong is one sentence that says what is wanted, on standard error, or as JSON on standard output alone; exit code 2 where the command line is wrong, 1 where the work failed.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	missing, binary := filepath.Join(dir, "missing"), file("binary", "\x00\xff\x07\n\x80,\x01")
	const huge = "99999999999999999999999"
	for _, c := range []struct {
		args  []string
		code  int
		field string
		text  string
	}{
		{[]string{"plan", "--in", missing}, exitFailed, "in", "want a layout file, JSON or CSV"},
		{[]string{"plan", "--in", dir}, exitFailed, "in", "is a directory; want a layout file"},
		{[]string{"plan", "--in", binary}, exitFailed, "in", "layout line 1: 1 fields, want side,addr,bytes"},
		{[]string{"plan", "--in", file("binary.json", "\x00\xff")}, exitFailed, "in", "layout line 1"},
		{[]string{"plan", "--in", ""}, exitUsage, "in", "--in FILE or --layout PRESET"},
		{[]string{"plan", "--in"}, exitUsage, "flags", "needs an argument"},
		{[]string{"plan", "--layout", "tiny", "--seed", huge}, exitUsage, "flags", "want a whole number such as 8, from 0 to 18446744073709551615"},
		{[]string{"plan", "--layout", "tiny", "--runs=maybe"}, exitUsage, "flags", "want true or false"},
		{[]string{"plan", "--layout", "tiny", "--max-chunk", "-4K"}, exitUsage, "max-chunk", "as in 4096, 64K or 40MiB"},
		{[]string{"plan", "--layout", "tiny", "--max-chunk", huge}, exitUsage, "max-chunk", "does not fit 64 bits"},
		{[]string{"plan", "--layout", "tiny", "--chunk-target", "5s"}, exitUsage, "chunk-target", "as in 4096, 64K or 40MiB"},
		{[]string{"plan", "--layout", "tiny", "--memory", "gpu"}, exitUsage, "flags", `"vram:N"`},
		{[]string{"wire", "decode", binary}, exitFailed, "hex", "want hexadecimal digits"},
		{[]string{"wire", "decode", "a", "b"}, exitUsage, "arguments", "one argument"},
		{[]string{"wire", "encode", binary}, exitFailed, "json", "not a JSON object"},
		{[]string{"sim", "--replay", missing}, exitFailed, "replay", "want a file that a violation wrote"},
		{[]string{"sim", "--replay", dir}, exitFailed, "replay", "want a file that a violation wrote"},
		{[]string{"sim", "--replay", binary}, exitFailed, "replay", "not a replay file"},
		{[]string{"sim", "--replay", file("r", "# kvbounce simulation 1\nscenario nothing\n")}, exitFailed, "replay", `line 2: there is no scenario "nothing"`},
		{[]string{"sim", "--replay", ""}, exitFailed, "replay", "want a file"},
		{[]string{"sim", "--shrink", missing}, exitFailed, "shrink", "want a file that a violation wrote"},
		{[]string{"sim", "--scenario", "nothing"}, exitUsage, "scenario", "there are all, baseline"},
		{[]string{"sim", "--scenario", dir}, exitFailed, "scenario", "is a directory"},
		{[]string{"sim", "--scenario", binary}, exitFailed, "scenario", "line 1"},
		{[]string{"sim", "--scenario", "loss", "--replay", missing}, exitUsage, "scenario", "their file says it"},
		{[]string{"sim", "--seed", "1", "--seeds", "1..2"}, exitUsage, "seed", "one of --seed, --seeds"},
		{[]string{"sim", "--seed", "-1"}, exitUsage, "flags", "from 0 to"},
		{[]string{"sim", "--seeds", "3..2"}, exitUsage, "seeds", "want A..B, whole numbers with A <= B"},
		{[]string{"sim", "--seeds", ""}, exitUsage, "seeds", "want A..B"},
		{[]string{"sim", "--seeds", "1.." + huge}, exitUsage, "seeds", "want A..B"},
		{[]string{"sim", "--peers", huge}, exitUsage, "flags", "want a whole number such as 8"},
		{[]string{"sim", "--requests", "-1"}, exitUsage, "requests", "want 1 to 10000000"},
		{[]string{"doctor", "now"}, exitUsage, "arguments", "takes no arguments"},
		{[]string{"doctor", "--attach", "127.0.0.1:99999"}, exitUsage, "attach", "want a port"},
		{[]string{"doctor", "--attach", "unix:" + missing}, exitFailed, "attach", "is an agent with KVBOUNCE_DEBUG_LISTEN running there?"},
		{[]string{"config", "ARENA_SIZE"}, exitUsage, "arguments", "takes no arguments"},
		{[]string{"keygen", "--name", "a#b"}, exitUsage, "name", "holds '#'"},
		{[]string{"keygen", "--name", "a", "--out", ""}, exitUsage, "out", "--out is empty"},
		{[]string{"keygen", "--name", "a", "--out", binary}, exitFailed, "keys", "not a directory"},
		{[]string{"version", "all"}, exitUsage, "arguments", "takes no arguments"},
		{[]string{"recv", "--listen", "127.0.0.1:99999"}, exitUsage, "listen", "want ADDRESS:PORT"},
		{[]string{"recv", "--listen", "127.0.0.1:-1"}, exitUsage, "listen", "want ADDRESS:PORT"},
		{[]string{"recv", "--name", ""}, exitUsage, "name", "the name is empty"},
		{[]string{"send", "--peer", "127.0.0.1:99999"}, exitUsage, "peer", "want the ADDRESS:PORT"},
		{[]string{"send", "--name", "a#b"}, exitUsage, "name", "holds '#'"},
		{[]string{"send", "--layout", binary}, exitUsage, "layout", "want one of paged-4k"},
		{[]string{"send", "--rounds", huge}, exitUsage, "flags", "want a whole number such as 8"},
		{[]string{"demo", "--rounds", "-1"}, exitUsage, "rounds", "1 to 10000"},
		{[]string{"demo", "--one-process=2"}, exitUsage, "flags", "want true or false"},
		{[]string{"bench", "--layout", dir}, exitFailed, "layout", "is a directory; want a layout file"},
		{[]string{"bench", "--layout", binary}, exitFailed, "layout", "want side,addr,bytes"},
		{[]string{"bench", "--sweep", "--bytes", "1.5M"}, exitUsage, "bytes", "as in 4096, 64K or 40MiB"},
		{[]string{"bench", "--sweep", "--pieces", "4K,x"}, exitUsage, "pieces", "as in 4096, 64K or 40MiB"},
		{[]string{"bench", "--burst", huge}, exitUsage, "flags", "want a whole number such as 8"},
		{[]string{"--verbose=x", "version"}, exitUsage, "flags", "want true or false"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(c.args, " "), dir, ""), func(t *testing.T) {
			code, out, errs := command(t, c.args...)
			require.Equal(t, c.code, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.text)
			require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)

			code, out, errs = command(t, append([]string{"--json"}, c.args...)...)
			require.Equal(t, c.code, code, out)
			require.Empty(t, errs)
			field, message := failure(t, out)
			require.Equal(t, c.field, field, message)
			require.Contains(t, message, c.text)
		})
	}
}

// An error is JSON exactly where --json is the flag.
func TestWhereErrorsAreJSON(t *testing.T) {
	for _, c := range []struct {
		args []string
		json bool
	}{
		{[]string{"version", "--json=1", "--nope"}, true},
		{[]string{"version", "--nope", "--json=T"}, true},
		{[]string{"version", "--nope", "--json=false"}, false},
		{[]string{"version", "--json=maybe"}, false},
		{[]string{"version", "--nope", "--", "--json"}, false},
		{[]string{"version", "--json=0", "all"}, false},
		{[]string{"plan", "--in", "--json"}, false},
		{[]string{"--json"}, true}, // no command: help is no JSON
	} {
		code, out, errs := command(t, c.args...)
		require.NotEqual(t, exitOK, code, c.args)
		if c.json {
			failure(t, out)
			require.Empty(t, errs, c.args)
		} else {
			require.Empty(t, out, c.args)
			require.NotEmpty(t, errs, c.args)
		}
	}
}

// full is standard output on a full disk.
type full struct{ room int }

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	n := min(f.room, len(b))
	if f.room -= n; n < len(b) {
		return n, errFull
	}
	return n, nil
}

// Work whose result could not be written has failed.
func TestStandardOutputIsFull(t *testing.T) {
	for _, args := range [][]string{
		{"version"}, {"config"}, {"config", "--check"}, {"plan", "--layout", "tiny"}, {"sim", "--scenario", "baseline", "--requests", "3"}, {"--help"},
		{"demo", "--engine", "memory", "--layout", "tiny", "--rounds", "1"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			var errs strings.Builder
			code := run(append(args, more...), streams{in: strings.NewReader(""), out: &full{5}, err: &errs})
			require.Equal(t, exitFailed, code, args)
			require.Equal(t, "kvbounce: standard output can't be written: no space left\n", errs.String(), args)
		}
	}
	var errs strings.Builder
	code := run([]string{"plan", "--nope", "--json"}, streams{in: strings.NewReader(""), out: &full{}, err: &errs})
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs.String(), "kvbounce: unknown flag: --nope", "the error is told where it can be")
	require.Contains(t, errs.String(), "standard output can't be written")
}
