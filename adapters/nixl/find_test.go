package nixl

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// fileAt makes an empty file that stands for the library.
func fileAt(t *testing.T, parts ...string) string {
	t.Helper()
	file := filepath.Join(parts...)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	return file
}

// emptySearch is a machine without NIXL but for what the system's own folders hold, and nothing set.
func emptySearch(t *testing.T) (searchEnv, map[string]string) {
	dir, vars := t.TempDir(), map[string]string{}
	return searchEnv{
		getenv:  func(name string) string { return vars[name] },
		program: func() (string, error) { return filepath.Join(dir, "bin", "kvbounce"), nil },
		workdir: func() (string, error) { return dir, nil },
		home:    func() (string, error) { return dir, nil },
	}, vars
}

func TestFindTakesANamedPlaceAtItsWord(t *testing.T) {
	dir := t.TempDir()
	file := fileAt(t, dir, "inner", libraryName)
	wheel := fileAt(t, dir, "site-packages", ".nixl_cu13.mesonpy.libs", libraryName)
	link := filepath.Join(dir, "link.so")
	require.NoError(t, os.Symlink(file, link))
	for name, want := range map[string]string{
		file:                                file,
		filepath.Join(dir, "inner"):         file,
		link:                                file,
		filepath.Join(dir, "site-packages"): wheel,
	} {
		env, vars := emptySearch(t)
		vars[LibraryEnv] = name
		info, err := find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
		require.Equal(t, LibraryEnv, info.Source)
	}

	env, vars := emptySearch(t)
	vars[LibraryEnv] = filepath.Join(dir, "missing")
	_, err := find(env)
	require.ErrorIs(t, err, ErrNoLibrary)
	require.ErrorContains(t, err, LibraryEnv)
	require.ErrorContains(t, err, filepath.Join(dir, "missing"))
}

func TestFindLooksAround(t *testing.T) {
	t.Run("beside the program", func(t *testing.T) {
		env, _ := emptySearch(t)
		program, _ := env.program()
		want := fileAt(t, filepath.Dir(filepath.Dir(program)), setupFolder, ".nixl_cu12.mesonpy.libs", libraryName)
		info, err := find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
		require.Equal(t, "make setup", info.Source)
	})
	t.Run("in this module, from a folder below", func(t *testing.T) {
		env, _ := emptySearch(t)
		module := t.TempDir()
		want := fileAt(t, module, setupFolder, ".nixl_cu12.mesonpy.libs", libraryName)
		require.NoError(t, os.MkdirAll(filepath.Join(module, "adapters", "nixl"), 0o755))
		env.workdir = func() (string, error) { return filepath.Join(module, "adapters", "nixl"), nil }

		info, err := find(env) // the folder is not our module yet
		require.True(t, err != nil || info.Library != want)
		require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(moduleLine+"\n\ngo 1.26.0\n"), 0o644))
		info, err = find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
	})
	t.Run("in a virtual environment", func(t *testing.T) {
		env, vars := emptySearch(t)
		venv := t.TempDir()
		want := fileAt(t, venv, "lib", "python3.12", "site-packages", ".nixl_cu12.mesonpy.libs", libraryName)
		vars["VIRTUAL_ENV"] = venv
		info, err := find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
		require.Equal(t, "Python wheel", info.Source)
	})
	t.Run("beside a python on PATH, through its link", func(t *testing.T) {
		env, vars := emptySearch(t)
		real, bin := t.TempDir(), t.TempDir()
		python := fileAt(t, real, "bin", "python3.11")
		require.NoError(t, os.Symlink(python, filepath.Join(bin, "python3")))
		want := fileAt(t, real, "lib", "python3.11", "site-packages", ".nixl_cu12.mesonpy.libs", libraryName)
		vars["PATH"] = "/nowhere:" + bin
		info, err := find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
	})
	t.Run("where the loader looks", func(t *testing.T) {
		env, vars := emptySearch(t)
		dir := t.TempDir()
		want := fileAt(t, dir, libraryName)
		vars["LD_LIBRARY_PATH"] = "/nowhere:" + dir
		info, err := find(env)
		require.NoError(t, err)
		require.Equal(t, want, info.Library)
		require.Equal(t, "library path", info.Source)
		require.Equal(t, dir, info.Searched[len(info.Searched)-1])
	})
}

func TestFindDescribesAWheel(t *testing.T) {
	env, vars := emptySearch(t)
	packages := t.TempDir()
	libs := filepath.Join(packages, ".nixl_cu12.mesonpy.libs")
	vars[LibraryEnv] = fileAt(t, libs, libraryName)
	for _, plugin := range []string{"UCX", "POSIX"} {
		fileAt(t, libs, "plugins", "libplugin_"+plugin+".so")
	}
	fileAt(t, libs, "plugins", "libtelemetry_exporter_doca.so")
	fileAt(t, packages, "nixl_cu12-1.5.1.dist-info", "METADATA")
	info, err := find(env)
	require.NoError(t, err)
	require.Equal(t, "1.5.1", info.Version)
	require.Equal(t, []string{"POSIX", "UCX"}, info.Plugins)
	require.Equal(t, filepath.Join(libs, "plugins"), info.PluginDir)

	vars["NIXL_PLUGIN_DIR"] = packages
	info, err = find(env)
	require.NoError(t, err)
	require.Equal(t, packages, info.PluginDir)
	require.Empty(t, info.Plugins)
}

func TestErrorsOfAMissingLibrarySayWhatToDo(t *testing.T) {
	env, _ := emptySearch(t)
	info, err := find(env)
	if errors.Is(err, ErrNoLibrary) { // the machine's own folders may have one
		for _, words := range []string{"pip install nixl-cu12==1.5.1", "make setup", LibraryEnv} {
			require.ErrorContains(t, err, words)
		}
		require.NotContains(t, err.Error(), "\n")
	}
	require.NotEmpty(t, info.Searched)

	// A process of its own, since this one has a library.
	missing, err := roleCommand(t, "load", LibraryEnv+"=/nowhere").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(missing), "/nowhere")
}

func TestALibraryThatIsNotNIXLIsRefused(t *testing.T) {
	dir := t.TempDir()
	fileAt(t, dir, libraryName) // an empty file
	out, err := roleCommand(t, "load", LibraryEnv+"="+dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cannot be used")
	require.Contains(t, string(out), dir)
}

func TestOneLibraryPerProcess(t *testing.T) {
	first := newEngine(t, Config{})
	t.Setenv(LibraryEnv, fileAt(t, t.TempDir(), libraryName))
	require.Equal(t, first.library, newEngine(t, Config{}).library, "whatever the environment says by now")
	require.Contains(t, first.library.info.Plugins, "UCX")
}

func TestNewRefusesABadIdentity(t *testing.T) {
	_, err := New(Config{Identity: "not an identity"})
	require.ErrorIs(t, err, ports.ErrBadIdentity)
}

func TestEnvironment(t *testing.T) {
	set := func(names ...string) func(string) bool {
		return func(name string) bool {
			for _, n := range names {
				if n == name {
					return true
				}
			}
			return false
		}
	}
	env := planEnvironment(set())
	require.Equal(t, map[string]string{"UCX_MEM_EVENTS": "n", "UCX_DEBUG_SIGNO": "0", "UCX_LOG_FILE": "stderr", "UCX_WARN_UNUSED_ENV_VARS": "n"}, env.set)
	require.Empty(t, env.unset)

	// The user's own settings stay, but for what makes NIXL hang or crawl.
	env = planEnvironment(set("UCX_MEM_MMAP_HOOK_MODE", "UCX_LOG_FILE", "NIXL_ETCD_ENDPOINTS", "UCX_RNDV_THRESH"))
	require.Equal(t, map[string]string{"UCX_DEBUG_SIGNO": "0", "UCX_WARN_UNUSED_ENV_VARS": "n"}, env.set)
	require.Equal(t, []string{"NIXL_ETCD_ENDPOINTS", "UCX_RNDV_THRESH"}, env.unset)

	for value, on := range map[string]bool{"y": true, "Yes": true, "1": true, "n": false, "": false} {
		require.Equal(t, on, sharedMemoryControlIsOn(func(name string) string {
			if name == "UCX_MM_ERROR_HANDLING" {
				return value
			}
			return ""
		}), value)
	}
}
