package wiring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/config"
)

func TestParseSettings(t *testing.T) {
	file, err := parseSettings("kv.yaml", []byte(`# of a node
---
arena_size: 64M   # small
copy_streams: 010
enable: Yes

control_bind: "tcp://*:5555"
request_timeout: '30s'
`))
	require.NoError(t, err)
	require.Equal(t, config.File{Path: "kv.yaml", Entries: []config.Entry{
		{Key: "arena_size", Value: "64M", Line: 3}, {Key: "copy_streams", Value: "010", Line: 4}, {Key: "enable", Value: "Yes", Line: 5},
		{Key: "control_bind", Value: "tcp://*:5555", Line: 7}, {Key: "request_timeout", Value: "30s", Line: 8},
	}}, file)
	for _, nothing := range []string{"", "\n", "# only a comment\n", "---\n", "{}"} {
		file, err := parseSettings("kv.yaml", []byte(nothing))
		require.NoError(t, err, "%q", nothing)
		require.Empty(t, file.Entries)
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"arena_size: [1, 2]":             `kv.yaml line 1: the value of "arena_size" must be plain text`,
		"\narena_size:\n  bytes: 1":      `kv.yaml line 3: the value of "arena_size"`,
		"arena_size:":                    `kv.yaml line 1: "arena_size" has no value`,
		"arena_size: ~":                  `"arena_size" has no value`,
		"- arena_size":                   "kv.yaml line 1: want lines of the form name: value",
		"just text":                      "want lines of the form name: value",
		"? [a]\n: b":                     "a name must be plain text",
		"a: &x 1":                        `the value of "a" must be plain text`,
		"a: !!int 1":                     `the value of "a" must be plain text`,
		"a: 1\n---\nb: 2":                "more than one YAML document",
		"a: 1\n...\ntrailing: [":         "more than one YAML document",
		"a: \"1":                         "kv.yaml is not YAML",
		"a: 1\n\tb: 2":                   "kv.yaml is not YAML: line ",
		"a: 1\nb: *a":                    "kv.yaml is not YAML",
		"\x00":                           "kv.yaml is not YAML",
		strings.Repeat("a: {", 100_000):  "kv.yaml is not YAML",
		strings.Repeat("[", 100_000):     "kv.yaml is not YAML",
		"a: 1\n<<: {arena_size: 2}":      `the value of "<<"`,
		"copy_streams: |\n  4\n  5":      "", // plain text of two lines; its value is refused later
		"%YAML 9.9\n---\na: 1":           "kv.yaml is not YAML",
		"a: 1\nb: \xff\xfe":              "kv.yaml is not YAML",
		"a: 1 b: 2":                      "kv.yaml is not YAML",
		"arena_size: 1\n  copy: 2":       "kv.yaml is not YAML",
		"arena_size: 1\narena_size: 2\n": "", // config.Read says that it is there twice
	} {
		_, err := parseSettings("kv.yaml", []byte(text))
		if want == "" {
			require.NoError(t, err, "%.40q", text)
			continue
		}
		require.ErrorContains(t, err, want, "%.40q", text)
		require.NotContains(t, err.Error(), "\n")
	}
}

// Whatever a file holds, reading it ends with settings or with an error.
func TestParseSettingsProperty(t *testing.T) {
	parts := []string{"arena_size", ": ", "64M", "\n", "- ", "? ", "&a ", "*a", "!!x ", "|", ">", "\"", "'", "{", "}", "[", "]", "---\n", "#", "\t", "\xff", "<<", ",", "~", "  "}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(t, "parts"), "")
		file, err := parseSettings("kv.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, e := range file.Entries {
			require.Positive(t, e.Line)
		}
		_, _ = config.Read([]string{"KVBOUNCE_CONFIG=kv.yaml"}, file)
	})
}

func TestReadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	environ := []string{"KVBOUNCE_CONFIG=" + path, "KVBOUNCE_MAX_PEERS=7"}
	write("max_peers: 5\nlog_rate: 3\n")
	r, err := ReadSettings(environ)
	require.NoError(t, err)
	require.Equal(t, 7, r.Config.MaxPeers)
	require.Equal(t, 3, r.Config.LogRate)
	_, err = r.Config.Validate()
	require.NoError(t, err, "settings that were read can be handed to New")

	for text, want := range map[string]string{
		"max_peer: 5":     path + ` line 1: no setting has the name "max_peer"`,
		"\nmax_peers: 0":  "max_peers (" + path + ` line 2) is "0"; allowed: 1 to 2147483647`,
		"max_peers: [":    "KVBOUNCE_CONFIG: " + path + " is not YAML",
		"max_peers: 5\n ": "",
		"#" + strings.Repeat(" a comment", maxSettingsFile/9): "is longer than",
	} {
		write(text)
		_, err := ReadSettings(environ)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.Remove(path))
	_, err = ReadSettings(environ)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "KVBOUNCE_CONFIG: ")
	_, err = ReadSettings([]string{"KVBOUNCE_CONFIG=" + filepath.Dir(path)})
	require.ErrorContains(t, err, "is a directory")
	r, err = ReadSettings(nil)
	require.NoError(t, err)
	require.Equal(t, 4096, r.Config.MaxPeers)
}
