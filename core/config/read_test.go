package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withFile is an environment that names the file.
func withFile(environ ...string) []string { return append(environ, "KVBOUNCE_CONFIG=kv.yaml") }

func fileOf(entries ...Entry) File { return File{Path: "kv.yaml", Entries: entries} }

// valueOf finds a setting in a result.
func valueOf(t *testing.T, r Resolved, name string) Value {
	t.Helper()
	for _, v := range r.Values {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no setting %s", name)
	return Value{}
}

func TestPrecedence(t *testing.T) {
	const original = "TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=3"
	for _, tc := range []struct {
		environ []string
		file    File
		want    string
		origin  string
	}{
		{nil, fileOf(), "8", "default"},
		{[]string{original}, fileOf(), "3", "original TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT"},
		{[]string{original}, fileOf(Entry{"copy_streams", "4", 7}), "4", "file kv.yaml line 7"},
		{[]string{original, "KVBOUNCE_COPY_STREAMS=5"}, fileOf(Entry{"copy_streams", "4", 7}), "5", "environment KVBOUNCE_COPY_STREAMS"},
		{[]string{original, "KVBOUNCE_COPY_STREAMS="}, fileOf(Entry{"copy_streams", "4", 7}), "4", "file kv.yaml line 7"},
		{[]string{"TRTLLM_NIXL_BOUNCE_COPY_STREAM_COUNT=nonsense"}, fileOf(Entry{"copy_streams", "4", 7}), "4", "file kv.yaml line 7"},
	} {
		r, err := Read(withFile(tc.environ...), tc.file)
		require.NoError(t, err, "%+v", tc)
		require.Empty(t, r.Warnings)
		v := valueOf(t, r, "COPY_STREAMS")
		require.Equal(t, []string{tc.want, tc.origin}, []string{v.Value, v.Origin.String()})
		require.Equal(t, "kv.yaml", r.Config.ConfigFile)
	}
}

// Every setting's good values mean the same in a file, and its bad ones are errors that name the key and the line.
func TestEveryRowInAFile(t *testing.T) {
	for _, tc := range rowCases() {
		if tc.name == configFile {
			continue
		}
		key := strings.ToLower(tc.name)
		for value, want := range tc.good {
			r, err := Read(withFile(tc.with...), fileOf(Entry{key, value, 3}))
			require.NoError(t, err, "%s: %s", key, value)
			require.Equal(t, want, tc.get(r.Config), "%s: %s", key, value)
			require.Equal(t, "file kv.yaml line 3", strings.TrimSuffix(valueOf(t, r, tc.name).Origin.String(), ", lowered to fit ARENA_SIZE"))
		}
		for _, value := range append(tc.bad, "") {
			_, err := Read(withFile(), fileOf(Entry{key, value, 3}))
			if value == "" && err == nil {
				require.Contains(t, []any{"", nil}, tc.get(Default()), key) // only where nothing is what is meant
				continue
			}
			var bad *Error
			require.ErrorAs(t, err, &bad, "%s: %s", key, value)
			if bad.Setting == tc.name {
				require.Contains(t, err.Error(), key+" (kv.yaml line 3) is ", value)
			} else { // a rule that another setting's default breaks
				require.Contains(t, bad.Allowed, tc.name, value)
			}
		}
	}
}

func TestBadKeysInAFile(t *testing.T) {
	r, err := Read(withFile("KVBOUNCE_ENABLE=maybe"), fileOf(
		Entry{"arena_siz", "1G", 1}, Entry{"copy_streams", "65", 2}, Entry{"Enable", "1", 3}, Entry{"config", "other.yaml", 4}, Entry{"copy_streams", "4", 5}, Entry{"", "x", 6},
		Entry{"nixl_lib", "x", 7}))
	require.EqualError(t, err, strings.Join([]string{
		`kv.yaml line 1: no setting has the name "arena_siz"; kvbounce config lists them`,
		`copy_streams (kv.yaml line 2) is "65"; allowed: 1 to 64`,
		`kv.yaml line 3: "Enable" is to be written in lower case`,
		`kv.yaml line 4: a settings file can't name another; "config" is for the environment`,
		`kv.yaml line 5: "copy_streams" is set again, first in line 2`,
		`kv.yaml line 6: no setting has the name ""; kvbounce config lists them`,
		`kv.yaml line 7: no setting has the name "nixl_lib"; kvbounce config lists them`,
		`KVBOUNCE_ENABLE is "maybe"; allowed: 0, false, no, off or 1, true, yes, on`,
	}, "\n"))
	require.Equal(t, Config{}, r.Config)
	require.Empty(t, r.Values)
	var f *FileError
	require.ErrorAs(t, err, &f)
	require.Equal(t, FileError{"kv.yaml", 1, "arena_siz", f.Text}, *f)
}

// A bad value in the file is an error even where the environment overrides it.
func TestOverriddenBadValueInAFile(t *testing.T) {
	_, err := Read(withFile("KVBOUNCE_COPY_STREAMS=4"), fileOf(Entry{"copy_streams", "x", 2}))
	require.EqualError(t, err, `copy_streams (kv.yaml line 2) is "x", want a whole number such as 8, digits alone; allowed: 1 to 64`)
}

// A rule between settings names the place of the one that breaks it.
func TestFaultNamesTheFile(t *testing.T) {
	_, err := Read(withFile("KVBOUNCE_REQUEST_TIMEOUT=60s"), fileOf(Entry{"receiver_lease", "50s", 9}))
	require.EqualError(t, err, `receiver_lease (kv.yaml line 9) is "50s"; allowed: more than REQUEST_TIMEOUT (1m0s)`)
	_, err = Read(withFile("KVBOUNCE_RECEIVER_LEASE=50s"), fileOf(Entry{"request_timeout", "60s", 9}))
	require.EqualError(t, err, `KVBOUNCE_RECEIVER_LEASE is "50s"; allowed: more than REQUEST_TIMEOUT (1m0s)`)
}

func TestFromEnvReadsNoFile(t *testing.T) {
	_, _, err := FromEnv([]string{"KVBOUNCE_CONFIG=kv.yaml"})
	require.EqualError(t, err, `KVBOUNCE_CONFIG is "kv.yaml"; allowed: unset: this program takes its settings from the environment alone`)
	require.Equal(t, "kv.yaml", FilePath([]string{"KVBOUNCE_CONFIG=kv.yaml"}))
	require.Empty(t, FilePath([]string{"KVBOUNCE_CONFIG="}))
	require.Empty(t, FilePath(nil))
}

func TestOrigins(t *testing.T) {
	r, err := Read(withFile("KVBOUNCE_ARENA_SIZE=64M", "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS=1000"), fileOf(Entry{"retain_limit", "1M", 4}))
	require.NoError(t, err)
	require.Len(t, r.Values, len(Settings()))
	origins := map[string]string{}
	for i, v := range r.Values {
		require.Equal(t, Settings()[i], v.Setting)
		origins[v.Name] = v.Value + ": " + v.Origin.String()
	}
	for name, want := range map[string]string{
		"ENABLE": "0: default", "ARENA_SIZE": "64M: environment KVBOUNCE_ARENA_SIZE", "MAX_CHUNK_SIZE": "32M: default, lowered to fit ARENA_SIZE",
		"REQUEST_TIMEOUT": "1s: original TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS", "RECEIVER_LEASE": "2s: derived", "RETAIN_LIMIT": "1M: file kv.yaml line 4",
		"CONFIG": "kv.yaml: environment KVBOUNCE_CONFIG", "CONTROL_ADVERTISE": ": default", "CURVE_SECRET_KEY_FILE": ": default", "LOG_RATE": "10: default",
	} {
		require.Equal(t, want, origins[name], name)
	}
	require.Equal(t, 2*time.Second, r.Config.ReceiverLease)

	// An original's value that is dropped leaves the default.
	r, err = Read([]string{"TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES=512K"}, File{})
	require.NoError(t, err)
	require.Equal(t, "512M: default", valueOf(t, r, "ARENA_SIZE").Value+": "+valueOf(t, r, "ARENA_SIZE").Origin.String())
}
