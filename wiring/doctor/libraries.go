package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvbounce/kvbounce/adapters/nixl"
	"github.com/kvbounce/kvbounce/adapters/zmq"
	"github.com/kvbounce/kvbounce/wiring"
)

// NIXLVersion is the version of the NIXL that an agent on this machine would use, without loading it: "" when there is none, "unknown" when its files do not tell.
func NIXLVersion() string {
	info, err := nixl.Find()
	switch {
	case err != nil:
		return ""
	case info.Version == "":
		return "unknown"
	}
	return info.Version
}

func checkNIXL() (Check, nixl.Info) {
	c := Check{Name: "nixl", Required: true}
	info, err := nixl.Find()
	if err != nil {
		c.Detail = err.Error()
		if len(info.Searched) > 1 { // else one place was named
			c.Detail = "no libnixl_capi.so in any of: " + strings.Join(info.Searched, ", ")
		}
		c.Remedy = fmt.Sprintf("pip install nixl-cu12==1.5.1, or run make setup in kvbounce's repository, or set %s to the path of libnixl_capi.so", nixl.LibraryEnv)
		return c, info
	}
	c.OK, c.Found, c.Detail = true, info.Version, fmt.Sprintf("%s, found by %s", info.Library, info.Source)
	if c.Found == "" {
		c.Found = "of unknown version"
	}
	return c, info
}

func checkPlugins(info nixl.Info) Check {
	c := Check{Name: "plugins", Required: true, Found: strings.Join(info.Plugins, ", "), Detail: "in " + info.PluginDir}
	if c.OK = slices.Contains(info.Plugins, ucxPlugin); !c.OK {
		c.Detail = "no " + pluginFile(info) + ", without which NIXL moves nothing between agents"
		c.Remedy = "install a whole NIXL, or set NIXL_PLUGIN_DIR to the folder of its plugins"
	}
	return c
}

const ucxPlugin = "UCX"

func pluginFile(info nixl.Info) string {
	return filepath.Join(info.PluginDir, "libplugin_"+ucxPlugin+".so")
}

// modules are the parts that UCX loads by itself, each for a kind of transport.
type modules struct {
	folder string            // "" when it is not known
	files  map[string]string // by name, as uct_cuda
}

// findModules finds the folder "ucx" beside the libucs that NIXL's plugin would get, which is where UCX looks.
func findModules(l *loader, info nixl.Info) modules {
	plugin, err := readObject(pluginFile(info))
	if err != nil {
		return modules{}
	}
	for _, name := range plugin.needed {
		if !strings.HasPrefix(name, "libucs") {
			continue
		}
		library, ok := l.find(plugin, name)
		if !ok {
			return modules{}
		}
		if real, err := filepath.EvalSymlinks(library); err == nil {
			library = real
		}
		found := modules{folder: filepath.Join(filepath.Dir(library), "ucx"), files: map[string]string{}}
		files, _ := filepath.Glob(filepath.Join(found.folder, "libuc[tm]_*.so*")) // the pattern is well-formed
		for _, file := range files {
			name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), "lib"), ".so")
			found.files[name] = file
		}
		return found
	}
	return modules{}
}

func checkTransports(found modules) Check {
	c := Check{Name: "ucx_transports", OK: true, Found: "tcp, shared memory"}
	var names []string
	for name := range found.files {
		if transport, ok := strings.CutPrefix(name, "uct_"); ok {
			names = append(names, transport)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		c.Detail = "built in; no modules were found beside UCX"
		return c
	}
	c.Found += ", " + strings.Join(names, ", ")
	c.Detail = "the first two are built in, the others are modules in " + found.folder + "; UCX uses those whose devices are there"
	return c
}

func checkZMQ() Check {
	// This program is linked with it, so it is there; a release before 4.2 lacks what the control channel sets.
	c := Check{Name: "libzmq", Required: true, Found: zmq.Version()}
	var major, minor int
	if _, err := fmt.Sscanf(c.Found, "%d.%d", &major, &minor); err != nil || major < 4 || major == 4 && minor < 2 {
		c.Detail, c.Remedy = "older than 4.2", "install libzmq 4.2 or newer (Debian and Ubuntu: libzmq5)"
		return c
	}
	c.OK = true
	return c
}

func checkCurve() Check {
	if zmq.HasCurve() {
		return Check{Name: "curve", OK: true, Found: "CURVE", Detail: "this libzmq can encrypt control messages and authenticate their senders; kvbounce keygen makes the keys"}
	}
	return Check{
		Name: "curve", Detail: "this libzmq can't encrypt: control messages are readable and forgeable on the network",
		Remedy: "install a libzmq that was built with libsodium (Debian's and Ubuntu's libzmq5 is)",
	}
}

// checkSettings checks the settings of the environment, of the file that it names, and their keys, as an agent would.
func checkSettings(environ []string) Check {
	c := Check{Name: "settings", Required: true}
	settings, err := wiring.ReadSettings(environ)
	if err == nil {
		err = wiring.CheckKeys(settings.Config)
	}
	if err != nil {
		c.Detail, c.Remedy = err.Error(), "correct that setting; docs/settings.md has what is allowed, and kvbounce config shows where each comes from"
		return c
	}
	c.OK, c.Found, c.Detail = true, "valid", strings.Join(settings.Warnings, "; ")
	return c
}
