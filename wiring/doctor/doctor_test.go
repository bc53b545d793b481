package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvbounce/kvbounce/adapters/nixl"
)

// TestMain lets the test binary be the child process of its own tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		if err := json.NewEncoder(os.Stdout).Encode(Probe(slog.New(slog.NewTextHandler(io.Discard, nil)))); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func byName(t *testing.T, r Report) map[string]Check {
	t.Helper()
	checks := map[string]Check{}
	for _, c := range r.Checks {
		require.NotContains(t, checks, c.Name)
		checks[c.Name] = c
		if c.OK {
			require.Empty(t, c.Remedy, c.Name)
			require.NotEmpty(t, c.Found, c.Name)
		} else {
			require.NotEmpty(t, c.Remedy, c.Name)
			require.NotEmpty(t, c.Detail, c.Name)
		}
	}
	return checks
}

// The real machine, with NIXL as make setup brings it.
func TestExamine(t *testing.T) {
	r := Examine(t.Context(), Options{Probe: []string{os.Args[0], "probe"}})
	require.True(t, r.OK, "%+v", r)
	checks := byName(t, r)
	for _, name := range []string{"nixl", "plugins", "engine", "libzmq", "settings"} {
		require.True(t, checks[name].OK, name)
		require.True(t, checks[name].Required, name)
	}
	require.Equal(t, NIXLVersion(), checks["nixl"].Found)
	require.Contains(t, checks["plugins"].Found, "UCX")
	require.Contains(t, checks["ucx_transports"].Found, "cma")
	require.Contains(t, checks["engine"].Detail, "each byte checked")
	require.Contains(t, checks["cuda_build"].Detail, "this build has no CUDA")
	require.Contains(t, checks, "ucx_cuda")
}

func TestExamineWithoutNIXL(t *testing.T) {
	t.Setenv(nixl.LibraryEnv, t.TempDir())
	r := Examine(t.Context(), Options{Probe: []string{"/nonexistent"}})
	require.False(t, r.OK)
	checks := byName(t, r)
	require.Contains(t, checks["nixl"].Detail, os.Getenv(nixl.LibraryEnv))
	require.Contains(t, checks["nixl"].Remedy, "make setup")
	require.Contains(t, checks["engine"].Detail, "not tried")
	require.False(t, checks["plugins"].OK)
	require.Empty(t, NIXLVersion())
	require.True(t, checks["libzmq"].OK)
}

func TestNoPlugin(t *testing.T) {
	c := checkPlugins(nixl.Info{PluginDir: "/p", Plugins: []string{"GDS", "POSIX"}})
	require.False(t, c.OK)
	require.True(t, c.Required)
	require.Equal(t, "GDS, POSIX", c.Found)
	require.Contains(t, c.Detail, "/p/libplugin_UCX.so")
	require.True(t, checkTransports(modules{}).OK)
}

func TestSettings(t *testing.T) {
	c := checkSettings([]string{"KVBOUNCE_REQUEST_TIMEOUT=never"})
	require.False(t, c.OK)
	require.True(t, c.Required)
	require.Contains(t, c.Detail, "KVBOUNCE_REQUEST_TIMEOUT")
	c = checkSettings([]string{"KVBOUNCE_NOT_A_SETTING=1"})
	require.True(t, c.OK)
	require.Contains(t, c.Detail, "KVBOUNCE_NOT_A_SETTING", "warnings are shown")
}

// Whatever the child does, the check says what it was.
func TestEngineChild(t *testing.T) {
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	for _, c := range []struct {
		name    string
		command []string
		limit   time.Duration
		ok      bool
		want    []string
	}{
		{"good", shell(`echo noise >&2; echo '{"failed":"","error":"","open_us":12000}'`), time.Minute, true, []string{"12 ms"}},
		{"failed", shell(`echo two >&2; echo lines >&2; echo '{"failed":"start an agent","error":"no transport"}'`), time.Minute, false, []string{"could not start an agent: no transport", "its log ends: two lines"}},
		{"killed", shell(`echo last words >&2; kill -SEGV $$`), time.Minute, false, []string{"segmentation fault", "last words"}},
		{"nonsense", shell(`echo hello`), time.Minute, false, []string{"can't be read"}},
		{"silent", shell(`:`), time.Minute, false, []string{"can't be read"}},
		{"hangs", shell(`exec sleep 600`), 20 * time.Millisecond, false, []string{"took too long"}},
		{"missing", []string{"/nonexistent/kvbounce"}, time.Minute, false, []string{"/nonexistent/kvbounce"}},
		{"none", nil, time.Minute, false, []string{"not named"}},
		{"chatty", shell(`yes "$(head -c 1000 /dev/zero | tr '\0' x)" | head -n 2000 >&2; exit 3`), time.Minute, false, []string{"exit status 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := checkEngine(t.Context(), Options{Probe: c.command, Environ: []string{"UCX_TLS=x", "PATH=/bin"}}, c.limit)
			require.Equal(t, c.ok, check.OK)
			require.True(t, check.Required)
			for _, want := range c.want {
				require.Contains(t, check.Detail, want)
			}
			require.Less(t, len(check.Detail), 700)
			if !c.ok {
				require.Contains(t, check.Remedy, "try without UCX_TLS=x")
			}
		})
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, checkEngine(interrupted, Options{Probe: shell("exec sleep 600")}, time.Minute).OK)
}

// The probe itself reports what fails.
func TestProbeFails(t *testing.T) {
	t.Setenv(nixl.LibraryEnv, t.TempDir())
	r := Probe(slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.Equal(t, stepOpen, r.Failed)
	require.Contains(t, r.Error, nixl.LibraryEnv)
}

// fakeMachine has these files.
func fakeMachine(t *testing.T, files map[string]string) machine {
	m := machine{root: t.TempDir(), getenv: func(string) string { return "" }}
	for name, text := range files {
		write(t, m.path(name), text)
	}
	return m
}

func TestHugePages(t *testing.T) {
	for text, want := range map[string]Check{
		"[always] madvise never\n": {OK: true, Found: "always"},
		"always [madvise] never\n": {OK: true, Found: "madvise"},
		"always madvise [never]\n": {Found: "never", Remedy: "as root: echo madvise > " + hugePages},
		"":                         {Remedy: "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"},
	} {
		m := fakeMachine(t, map[string]string{hugePages: text})
		got := m.checkHugePages()
		require.False(t, got.Required)
		require.Equal(t, want, Check{OK: got.OK, Found: got.Found, Remedy: got.Remedy}, text)
	}
	require.False(t, fakeMachine(t, nil).checkHugePages().OK)
}

func TestProcessCopy(t *testing.T) {
	const cap, none = "Name:\tx\nCapEff:\t0000000000080000\n", "Name:\tx\nCapEff:\t0000003fffd7ffff\n"
	for _, c := range []struct {
		scope, status string
		refused       error
		want          string // of the remedy
	}{
		{"", "", nil, ""},
		{"0", none, nil, ""},
		{"1", none, nil, ""},
		{"2", cap, nil, ""},
		{"2", none, nil, "kernel.yama.ptrace_scope=1"},
		{"2", "", nil, "kernel.yama.ptrace_scope=1"},
		{"3", cap, nil, "restart"},
		{"0", cap, errors.New("operation not permitted"), "seccomp"},
	} {
		m := fakeMachine(t, map[string]string{yama: c.scope + "\n", "/proc/self/status": c.status})
		got := m.checkProcessCopy(c.refused)
		require.Equal(t, c.want == "", got.OK, "%+v", c)
		require.Contains(t, got.Remedy, c.want)
		require.Equal(t, got.OK, got.Found != "")
	}
}

func TestRDMA(t *testing.T) {
	require.False(t, fakeMachine(t, nil).checkRDMA().OK)
	m := fakeMachine(t, map[string]string{"/sys/class/infiniband/mlx5_1/x": "", "/sys/class/infiniband/mlx5_0/x": ""})
	require.Equal(t, Check{Name: "rdma", OK: true, Found: "mlx5_0, mlx5_1"}, m.checkRDMA())
}

const (
	openModule = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 12.3.0\n"
	oldModule  = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version: gcc 9.4.0"
)

func TestDriver(t *testing.T) {
	for text, want := range map[string]string{openModule: "580.95.05", oldModule: "470.256.02", "": "", "NVRM version: \n": ""} {
		require.Equal(t, want, fakeMachine(t, map[string]string{"/proc/driver/nvidia/version": text}).driverVersion())
	}
	files := map[string]string{"/proc/driver/nvidia/version": openModule}
	for i, model := range []string{"NVIDIA H200", "NVIDIA A10", "NVIDIA H200"} {
		files[fmt.Sprintf("/proc/driver/nvidia/gpus/0000:%d/information", i)] = "Model: \t\t " + model + "\nIRQ:   \t\t 1\n"
	}
	m := fakeMachine(t, files)
	c := m.checkDriver(m.loader())
	require.False(t, c.OK)
	require.Equal(t, "driver 580.95.05, 1 x NVIDIA A10, 2 x NVIDIA H200", c.Found)
	require.Contains(t, c.Detail, driverLibrary)

	library(t, m.path("/usr/lib64/"+driverLibrary), driverLibrary)
	c = m.checkDriver(m.loader())
	require.True(t, c.OK)
	require.Equal(t, m.path("/usr/lib64/"+driverLibrary), c.Detail)

	m = fakeMachine(t, nil)
	require.Equal(t, "no NVIDIA driver here", m.checkDriver(m.loader()).Detail)
	require.Contains(t, m.checkCUDABuild().Detail, "seen: none")
	library(t, m.path("/usr/lib64/"+driverLibrary), driverLibrary)
	c = m.checkDriver(m.loader())
	require.False(t, c.OK)
	require.Contains(t, c.Detail, "kernel module is not loaded")
}
