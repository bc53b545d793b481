package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/wiring/doctor"
)

// examined is doctor's JSON as another program reads it.
func examined(t *testing.T, out string) (ok bool, checks map[string]doctor.Check) {
	t.Helper()
	require.Equal(t, 1, strings.Count(out, "\n"))
	var r doctor.Report
	reader := json.NewDecoder(strings.NewReader(out))
	reader.DisallowUnknownFields()
	require.NoError(t, reader.Decode(&r), out)
	checks = map[string]doctor.Check{}
	for _, c := range r.Checks {
		checks[c.Name] = c
	}
	return r.OK, checks
}

func TestDoctor(t *testing.T) {
	code, out, errs := feed("", "doctor", "--json")
	require.Equal(t, exitOK, code, out)
	require.Empty(t, errs)
	ok, checks := examined(t, out)
	require.True(t, ok)
	require.True(t, checks["engine"].OK, "this test binary was the child that tried NIXL: %+v", checks["engine"])
	for _, key := range []string{"name", "ok", "found", "detail", "remedy"} {
		require.Contains(t, out, `"`+key+`":`)
	}

	code, out, errs = feed("", "doctor")
	require.Equal(t, exitOK, code)
	require.Empty(t, errs)
	require.Contains(t, out, "ok    nixl ")
	require.Contains(t, out, "Everything that moving host memory needs is here.")
}

func TestDoctorWithoutNIXL(t *testing.T) {
	t.Setenv("KVBOUNCE_NIXL_LIB", "/nonexistent")
	code, out, errs := feed("", "doctor", "--json")
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs)
	ok, checks := examined(t, out)
	require.False(t, ok)
	require.Contains(t, checks["nixl"].Detail, "/nonexistent")
	require.NotEmpty(t, checks["nixl"].Remedy)
	require.True(t, checks["libzmq"].OK)

	code, out, errs = feed("", "doctor")
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs, "the table says it")
	require.Contains(t, out, "FAIL  nixl")
	require.Contains(t, out, "Host memory can't be moved yet: nixl, plugins, engine.")
}

func TestDoctorWithBadSettings(t *testing.T) {
	t.Setenv("KVBOUNCE_ARENA_SIZE", "1K")
	code, out, _ := feed("", "doctor", "--json")
	require.Equal(t, exitFailed, code)
	ok, checks := examined(t, out)
	require.False(t, ok)
	require.Contains(t, checks["settings"].Detail, "ARENA_SIZE")
	require.True(t, checks["engine"].OK)
}

func TestWrap(t *testing.T) {
	require.Equal(t, []string{"ab cd", "efghijk", "l"}, wrap("ab  cd efghijk\nl", 5))
	require.Equal(t, []string{""}, wrap("", 5))
}

func TestVersion(t *testing.T) {
	code, out, errs := feed("", "version", "--json")
	require.Equal(t, exitOK, code)
	require.Empty(t, errs)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, 3.0, v["wire"])
	require.Equal(t, runtime.Version(), v["go"])
	require.Equal(t, doctor.NIXLVersion(), v["nixl"])
	require.NotEmpty(t, v["nixl"])
	require.Contains(t, v, "version")
	require.Contains(t, v, "commit")

	t.Setenv("KVBOUNCE_NIXL_LIB", "/nonexistent")
	code, out, _ = feed("", "version", "--json")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, `"nixl":""`)
	code, out, _ = feed("", "version")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "nixl      none\n")
	require.Contains(t, out, "wire      3\n")
}

func TestVersionOfBuild(t *testing.T) {
	build := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}}
	require.Equal(t, versionJSON{Version: "v1.2.3", Commit: "abc", Wire: 3, Go: runtime.Version(), NIXL: "1.5.1"}, newVersion(build, "1.5.1"))
	build.Settings[1].Value = "true"
	require.Equal(t, "abc+dirty", newVersion(build, "").Commit)
	require.Equal(t, "unknown", newVersion(nil, "").Version)
}
