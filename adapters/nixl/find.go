package nixl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LibraryEnv names the variable that holds the path of libnixl_capi.so, or of a folder that holds it.
const LibraryEnv = "KVBOUNCE_NIXL_LIB"

const (
	libraryName = "libnixl_capi.so"
	// wheelFolders matches where a Python wheel of NIXL keeps its libraries, beside its package; the number is CUDA's major version.
	wheelFolders = ".nixl_cu*.mesonpy.libs"
	// setupFolder is what `make setup` fills with an unpacked wheel, relative to the repository.
	setupFolder = ".deps/nixl"
	moduleLine  = "module github.com/kvbounce/kvbounce"
)

// ErrNoLibrary is wrapped by the error of Find when there is no NIXL.
var ErrNoLibrary = errors.New("NIXL's library " + libraryName + " was not found")

// Info says which NIXL this is.
type Info struct {
	Library   string   // the file, symbolic links resolved (NIXL finds its plugins beside it)
	Source    string   // what led to it: "KVBOUNCE_NIXL_LIB", "make setup", "Python wheel", ...
	Version   string   // such as "1.5.1", from the wheel's folder; "" when that does not tell
	PluginDir string   // where its plugins are
	Plugins   []string // their names, sorted: "UCX", ...
	Searched  []string // every place that was looked at, in order, up to and including the one that had it
}

// Find looks for NIXL's library without loading it: in the file or folder that KVBOUNCE_NIXL_LIB names; if it names none, in what `make setup` unpacked beside the program or in the repository; else
// in the Python environments on this machine; else where the loader looks for libraries. The variable is taken at its word: if there is no library, that is the error.
func Find() (Info, error) {
	return find(searchEnv{
		getenv:  environmentValue,
		program: os.Executable,
		workdir: os.Getwd,
		home:    os.UserHomeDir,
	})
}

// searchEnv is what the search depends on.
type searchEnv struct {
	getenv  func(string) string
	program func() (string, error)
	workdir func() (string, error)
	home    func() (string, error)
}

// place is a place to look at: a file, a folder that may hold the library, or a folder that may hold a wheel's folder.
type place struct {
	source string
	path   string
}

func find(env searchEnv) (Info, error) {
	if named := env.getenv(LibraryEnv); named != "" {
		if file, ok := libraryAt(named); ok {
			return describe(env, file, LibraryEnv, []string{named}), nil
		}
		return Info{Searched: []string{named}}, fmt.Errorf("%w: %s is %q, which is neither that file nor a folder that holds it; correct or unset it, then `kvbounce doctor` says where else NIXL is looked for", ErrNoLibrary, LibraryEnv, named)
	}
	var searched []string
	for _, p := range slices.Concat(setupPlaces(env), pythonPlaces(env), loaderPlaces(env)) {
		if slices.Contains(searched, p.path) {
			continue
		}
		searched = append(searched, p.path)
		if file, ok := libraryAt(p.path); ok {
			return describe(env, file, p.source, searched), nil
		}
	}
	return Info{Searched: searched}, fmt.Errorf("%w in any of %d folders (%s, Python's packages, the loader's): install it with `pip install nixl-cu12==1.5.1`, run `make setup` in the repository, or set %s to its path",
		ErrNoLibrary, len(searched), setupFolder, LibraryEnv)
}

// libraryAt finds the library at a path: the file itself, in that folder, or in a wheel's folder within it. It resolves links, since NIXL looks for its other parts
// relative to the file.
func libraryAt(path string) (string, bool) {
	candidates := []string{path, filepath.Join(path, libraryName)}
	wheels, _ := filepath.Glob(filepath.Join(path, wheelFolders, libraryName)) // the pattern is well-formed, so there is no error
	for _, candidate := range append(candidates, wheels...) {
		file, err := filepath.EvalSymlinks(candidate)
		if err != nil {
			continue
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, true
		}
	}
	return "", false
}

// setupPlaces are where `make setup` may have unpacked a wheel: beside the program, one folder above it (bin/), and in this module if the working directory is in it.
func setupPlaces(env searchEnv) []place {
	var places []place
	if program, err := env.program(); err == nil {
		if resolved, err := filepath.EvalSymlinks(program); err == nil {
			program = resolved
		}
		beside := filepath.Dir(program)
		for _, dir := range []string{beside, filepath.Dir(beside)} {
			places = append(places, place{"make setup", filepath.Join(dir, setupFolder)})
		}
	}
	if dir, err := env.workdir(); err == nil {
		// Only our own module counts: a library from just any folder above the working directory must not be loaded.
		for {
			if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
				if first, _, _ := strings.Cut(string(data), "\n"); strings.TrimSpace(first) == moduleLine {
					places = append(places, place{"make setup", filepath.Join(dir, setupFolder)})
				}
				break
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return places
}

// pythonPlaces are the package folders of the Python environments: the active one, those whose python is on PATH, and the usual ones.
func pythonPlaces(env searchEnv) []place {
	var prefixes []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := env.getenv(name); prefix != "" {
			prefixes = append(prefixes, prefix)
		}
	}
	for _, dir := range filepath.SplitList(env.getenv("PATH")) {
		pythons, _ := filepath.Glob(filepath.Join(dir, "python*"))
		for _, python := range pythons {
			// In a virtual environment the link's own place has the packages; elsewhere its target's.
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(python)))
			if target, err := filepath.EvalSymlinks(python); err == nil {
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(target)))
			}
		}
	}
	if home, err := env.home(); err == nil {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
		versions, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "*"))
		prefixes = append(prefixes, versions...)
	}
	prefixes = append(prefixes, "/usr/local", "/usr", "/opt/venv", "/opt/conda")

	var places []place
	for _, prefix := range prefixes {
		for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages", "lib64/python3*/site-packages"} {
			dirs, _ := filepath.Glob(filepath.Join(prefix, pattern))
			for _, dir := range dirs {
				places = append(places, place{"Python wheel", dir})
			}
		}
	}
	return places
}

// loaderPlaces are the folders in which the loader looks for a library by name, and NIXL's own default prefix.
func loaderPlaces(env searchEnv) []place {
	dirs := filepath.SplitList(env.getenv("LD_LIBRARY_PATH"))
	confs, _ := filepath.Glob("/etc/ld.so.conf.d/*.conf")
	for _, conf := range append([]string{"/etc/ld.so.conf"}, confs...) {
		data, err := os.ReadFile(conf)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				dirs = append(dirs, line)
			}
		}
	}
	nvidia, _ := filepath.Glob("/opt/nvidia/nvda_nixl/lib/*-linux-gnu")
	dirs = slices.Concat(dirs, nvidia, []string{"/opt/nvidia/nvda_nixl/lib64", "/usr/local/nixl/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
	var places []place
	for _, dir := range dirs {
		places = append(places, place{"library path", dir})
	}
	return places
}

// describe gathers what the files around a library tell.
func describe(env searchEnv, library, source string, searched []string) Info {
	info := Info{Library: library, Source: source, Searched: searched, Version: wheelVersion(library), PluginDir: env.getenv("NIXL_PLUGIN_DIR")}
	if info.PluginDir == "" {
		info.PluginDir = filepath.Join(filepath.Dir(library), "plugins")
	}
	plugins, _ := filepath.Glob(filepath.Join(info.PluginDir, "libplugin_*.so"))
	for _, plugin := range plugins {
		name := strings.TrimPrefix(filepath.Base(plugin), "libplugin_")
		info.Plugins = append(info.Plugins, strings.TrimSuffix(name, ".so"))
	}
	slices.Sort(info.Plugins)
	return info
}

// wheelVersion reads the version from the wheel's metadata folder, <packages>/nixl_cu12-1.5.1.dist-info for <packages>/.nixl_cu12.mesonpy.libs.
func wheelVersion(library string) string {
	folder := filepath.Dir(library)
	wheel, ok := strings.CutSuffix(strings.TrimPrefix(filepath.Base(folder), "."), ".mesonpy.libs")
	if !ok {
		return ""
	}
	infos, _ := filepath.Glob(filepath.Join(filepath.Dir(folder), wheel+"-*.dist-info"))
	if len(infos) != 1 {
		return ""
	}
	version := strings.TrimPrefix(filepath.Base(infos[0]), wheel+"-")
	return strings.TrimSuffix(version, ".dist-info")
}
