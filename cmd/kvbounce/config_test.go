package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/config"
)

// settingsFile writes a settings file and makes the environment name it.
func settingsFile(t *testing.T, lines ...string) (path string) {
	path = filepath.Join(t.TempDir(), "kv.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	t.Setenv("KVBOUNCE_CONFIG", path)
	return path
}

func TestConfigShowsEverySetting(t *testing.T) {
	path := settingsFile(t, "# comment", "arena_size: 64M", "copy_streams: 4")
	t.Setenv("KVBOUNCE_COPY_STREAMS", "5")
	t.Setenv("TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS", "1000")
	code, out, errs := command(t, "config")
	require.Equal(t, exitOK, code, errs)
	lines := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		fields := strings.Fields(line)
		lines[fields[0]] = fields[1:]
	}
	require.Len(t, lines, len(config.Settings()))
	require.Equal(t, []string{"64M", "file", path, "line", "2", "512M"}, lines["ARENA_SIZE"])
	require.Equal(t, []string{"5", "environment", "KVBOUNCE_COPY_STREAMS", "8"}, lines["COPY_STREAMS"])
	require.Equal(t, []string{"-", "default", "none"}, lines["CURVE_SECRET_KEY_FILE"])
	require.Contains(t, errs, "warning: MAX_CHUNK_SIZE is lowered")

	code, out, errs = command(t, "config", "--json")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs)
	var r configJSON
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Warnings, 1)
	require.Len(t, r.Settings, len(config.Settings()))
	byName := map[string]settingJSON{}
	for _, s := range r.Settings {
		byName[s.Name] = s
	}
	require.Equal(t, originJSON{Source: "file", File: path, Line: 2}, byName["ARENA_SIZE"].Origin)
	require.Equal(t, originJSON{Source: "environment", Variable: "KVBOUNCE_COPY_STREAMS"}, byName["COPY_STREAMS"].Origin)
	require.Equal(t, originJSON{Source: "original", Variable: "TRTLLM_NIXL_BOUNCE_REQUEST_TIMEOUT_MS"}, byName["REQUEST_TIMEOUT"].Origin)
	require.Equal(t, originJSON{Source: "derived"}, byName["RECEIVER_LEASE"].Origin)
	require.Equal(t, originJSON{Source: "default", Lowered: true}, byName["MAX_CHUNK_SIZE"].Origin)
	require.Equal(t, settingJSON{"COPY_STREAMS", "KVBOUNCE_COPY_STREAMS", "5", byName["COPY_STREAMS"].Origin, "8", "1 to 64"}, byName["COPY_STREAMS"])
}

func TestConfigCheck(t *testing.T) {
	code, out, errs := command(t, "config", "--check")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, "the settings are valid\n", out)
	code, out, _ = command(t, "config", "--check", "--json")
	require.Equal(t, exitOK, code)
	require.Equal(t, `{"ok":true,"errors":[],"warnings":[]}`+"\n", out)

	path := settingsFile(t, "arena_siz: 64M", "copy_streams: 400")
	t.Setenv("KVBOUNCE_ENABLE", "perhaps")
	for _, args := range [][]string{{"config", "--check"}, {"config"}, {"demo"}} {
		code, out, errs = command(t, args...)
		require.Equal(t, exitFailed, code)
		require.Empty(t, out)
		if args[0] == "config" {
			require.Equal(t, 3, strings.Count(errs, "\n"), "one line each: %s", errs)
		}
		require.Contains(t, errs, path+` line 1: no setting has the name "arena_siz"`)
		require.Contains(t, errs, "copy_streams ("+path+` line 2) is "400"; allowed: 1 to 64`)
		require.Contains(t, errs, `KVBOUNCE_ENABLE is "perhaps"`)
	}
	code, out, errs = command(t, "config", "--check", "--json")
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs)
	var r checkJSON
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.False(t, r.OK)
	var names []string
	for _, e := range r.Errors {
		names = append(names, e.Setting)
	}
	require.Equal(t, []string{"", "COPY_STREAMS", "ENABLE"}, names)
	code, out, _ = command(t, "config", "--json")
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"error":{"field":"",`)
	require.Contains(t, out, "KVBOUNCE_ENABLE")
}

func TestConfigCheckReadsWhatSettingsName(t *testing.T) {
	keys := t.TempDir()
	code, _, errs := command(t, "keygen", "--name", "a", "--out", keys)
	require.Equal(t, exitOK, code, errs)
	t.Setenv("KVBOUNCE_CURVE_SECRET_KEY_FILE", filepath.Join(keys, "a.secret"))
	t.Setenv("KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR", filepath.Join(keys, "missing"))
	code, out, _ := command(t, "config", "--check", "--json")
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"setting":"CURVE_AUTHORIZED_KEYS_DIR"`)
	require.Contains(t, out, "missing: no such file")

	t.Setenv("KVBOUNCE_CONFIG", filepath.Join(keys, "none.yaml"))
	code, out, _ = command(t, "config", "--check", "--json")
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"setting":"CONFIG"`)
	require.Contains(t, out, "none.yaml: no such file")
}
