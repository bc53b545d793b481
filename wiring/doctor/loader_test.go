package doctor

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/adapters/nixl"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// library builds an empty shared library. flags may name libraries that it needs.
func library(t *testing.T, file, soname string, flags ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	cc, err := exec.Command("go", "env", "CC").Output()
	require.NoError(t, err)
	args := append(strings.Fields(string(cc)), "-shared", "-nostdlib", "-Wl,--no-as-needed", "-Wl,-soname,"+soname, "-o", file, "-x", "c", "/dev/null", "-x", "none")
	out, err := exec.Command(args[0], append(args[1:], flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// needing builds a library that needs others, which need not exist.
func needing(t *testing.T, file string, names []string, flags ...string) {
	t.Helper()
	stubs := t.TempDir()
	for _, name := range names {
		library(t, filepath.Join(stubs, name), name)
		flags = append(flags, filepath.Join(stubs, name))
	}
	library(t, file, filepath.Base(file), flags...)
}

// The loader's order: RPATH, LD_LIBRARY_PATH, RUNPATH, cache, default folders; RUNPATH switches RPATH off; what is not for this machine is passed over.
func TestLoaderOrder(t *testing.T) {
	m := fakeMachine(t, nil)
	folder := func(name string) string { return m.path("/f/" + name) }
	rpath, runpath := m.path("/o/rpath.so"), m.path("/o/runpath.so")
	needing(t, rpath, []string{"libx.so.1"}, "-Wl,--disable-new-dtags,-rpath,"+folder("r")+":$ORIGIN/../f/r2")
	needing(t, runpath, []string{"libx.so.1"}, "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/../f/r")
	m.getenv = func(name string) string {
		return map[string]string{"LD_LIBRARY_PATH": folder("e1") + ":" + folder("e2")}[name]
	}
	write(t, m.path("/etc/ld.so.cache"), cache([2]string{"libx.so.1", "/f/c/libx.so.1"}))

	find := func(file string) string {
		o, err := readObject(file)
		require.NoError(t, err)
		require.Equal(t, []string{"libx.so.1"}, o.needed)
		found, ok := m.loader().find(o, "libx.so.1")
		require.Equal(t, !ok, len(m.loader().missing(o)) == 1)
		return found
	}
	require.Empty(t, find(rpath))
	put := func(name string) string {
		file := filepath.Join(folder(name), "libx.so.1")
		library(t, file, "libx.so.1")
		return file
	}
	library(t, m.path("/usr/lib/libx.so.1"), "libx.so.1")
	require.Equal(t, m.path("/usr/lib/libx.so.1"), find(rpath))
	c := put("c")
	require.Equal(t, c, find(rpath))
	require.Equal(t, c, find(runpath))
	r := put("r")
	require.Equal(t, r, find(rpath))
	require.Equal(t, r, filepath.Clean(find(runpath)))
	e2 := put("e2")
	require.Equal(t, r, find(rpath))
	require.Equal(t, e2, find(runpath))

	write(t, filepath.Join(folder("e1"), "libx.so.1"), "not a library")
	other, err := os.ReadFile(r)
	require.NoError(t, err)
	other[18] ^= 0xff // e_machine
	write(t, r, string(other))
	require.Equal(t, e2, find(rpath), "RPATH has one for another machine, LD_LIBRARY_PATH first none at all")
}

func TestReadObjectErrors(t *testing.T) {
	_, err := readObject("/nonexistent")
	require.Error(t, err)
	file := filepath.Join(t.TempDir(), "x")
	write(t, file, "#!/bin/sh")
	_, err = readObject(file)
	require.Error(t, err)
}

// The system's own cache is read: the C library is in it.
func TestRealLoader(t *testing.T) {
	self, err := readObject("/proc/self/exe")
	require.NoError(t, err)
	require.Contains(t, self.needed, "libc.so.6")
	l := machine{root: "/", getenv: os.Getenv}.loader()
	require.Empty(t, l.missing(self), "this program runs, so nothing is missing")
	if _, err := os.Stat("/etc/ld.so.cache"); err == nil {
		require.NotEmpty(t, l.cache["libc.so.6"])
	}
	_, ok := l.find(self, "libnever.so.99")
	require.False(t, ok)
}

// cache is a file as ldconfig writes it.
func cache(pairs ...[2]string) string {
	header := make([]byte, cacheHeaderBytes)
	copy(header, cacheMagic)
	binary.NativeEndian.PutUint32(header[len(cacheMagic):], uint32(len(pairs)))
	var entries, texts []byte
	start := len(header) + cacheEntryBytes*len(pairs)
	for _, p := range pairs {
		entry := make([]byte, cacheEntryBytes)
		for i, at := range []int{cacheNameAt, cacheFileAt} {
			binary.NativeEndian.PutUint32(entry[at:], uint32(start+len(texts)))
			texts = append(append(texts, p[i]...), 0)
		}
		entries = append(entries, entry...)
	}
	return string(header) + string(entries) + string(texts)
}

func TestParseCache(t *testing.T) {
	want := [][2]string{{"liba.so", "/x/liba.so"}, {"liba.so", "/y/liba.so"}, {"libb.so.2", "/x/libb.so.2"}}
	require.Equal(t, want, parseCache([]byte(cache(want...))))
	require.Equal(t, want, parseCache([]byte("ld.so-1.7.0 and older entries"+cache(want...))))
	require.Empty(t, parseCache(nil))
	require.Empty(t, parseCache([]byte(cacheMagic)))
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(cache(want...))
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		require.LessOrEqual(t, len(parseCache(b)), len(b)/cacheEntryBytes)
	})
}

// UCX's modules are found beside the libucs that NIXL's plugin gets, through links and RPATH, as in NIXL's wheel and as in a system's packages.
func TestFindModules(t *testing.T) {
	m := fakeMachine(t, nil)
	needing(t, m.path("/nixl/plugins/libplugin_UCX.so"), []string{"libm.so.6", "libucs-14c2.so.0"}, "-Wl,-rpath,$ORIGIN/../../libs")
	info := nixl.Info{PluginDir: m.path("/nixl/plugins")}
	require.Equal(t, modules{}, findModules(m.loader(), nixl.Info{PluginDir: "/nonexistent"}))
	require.Equal(t, modules{}, findModules(m.loader(), info))
	library(t, m.path("/real/libucs.so.0.0.0"), "libucs-14c2.so.0")
	require.NoError(t, os.MkdirAll(m.path("/libs"), 0o755))
	require.NoError(t, os.Symlink("../real/libucs.so.0.0.0", m.path("/libs/libucs-14c2.so.0")))
	for _, name := range []string{"libuct_cma.so.0.0.0", "libuct_cuda.so.0", "libucm_cuda.so.0", "libuct_ib.la", "libucx_perftest_cuda.so.0"} {
		write(t, m.path("/real/ucx/"+name), "")
	}
	found := findModules(m.loader(), info)
	real, err := filepath.EvalSymlinks(m.path("/real/ucx"))
	require.NoError(t, err)
	require.Equal(t, modules{folder: real, files: map[string]string{
		"uct_cma": real + "/libuct_cma.so.0.0.0", "uct_cuda": real + "/libuct_cuda.so.0", "ucm_cuda": real + "/libucm_cuda.so.0",
	}}, found)
	c := checkTransports(found)
	require.Equal(t, "tcp, shared memory, cma, cuda", c.Found)
}

// The condition of gpu.md's last section: which of the three libraries the loader does not find, and where it could.
func TestCUDALibraries(t *testing.T) {
	m := fakeMachine(t, nil)
	ucx := m.path("/site-packages/nixl_cu12.libs/ucx")
	found := modules{folder: ucx, files: map[string]string{"uct_cuda": ucx + "/libuct_cuda.so.0.0.0", "ucm_cuda": ucx + "/libucm_cuda.so.0.0.0"}}
	needing(t, found.files["uct_cuda"], []string{driverLibrary, managerLibrary})
	needing(t, found.files["ucm_cuda"], []string{driverLibrary, runtimeLibrary})
	check := func() Check { return m.checkCUDALibraries(m.loader(), found) }

	c := check()
	require.False(t, c.OK)
	require.False(t, c.Required)
	require.Contains(t, c.Detail, "libcuda.so.1, libcudart.so.12, libnvidia-ml.so.1")
	require.Contains(t, c.Detail, "VRAM memory is detected as host by UCX")
	require.Contains(t, c.Remedy, "install NVIDIA's driver")
	require.Contains(t, c.Remedy, "pip install nvidia-cuda-runtime-cu12")

	// The driver is where the loader looks; the runtime is an unpacked wheel beside NIXL's.
	library(t, m.path("/usr/lib/"+triplet+"/"+driverLibrary), driverLibrary)
	library(t, m.path("/usr/lib/"+triplet+"/"+managerLibrary), managerLibrary)
	runtime := m.path("/site-packages/nvidia/cuda_runtime/lib")
	library(t, filepath.Join(runtime, runtimeLibrary), runtimeLibrary)
	c = check()
	require.False(t, c.OK)
	require.Contains(t, c.Detail, "need libcudart.so.12, which")
	require.Equal(t, "for GPU memory: put "+runtime+" on LD_LIBRARY_PATH", c.Remedy)

	m.getenv = func(string) string { return runtime }
	c = check()
	require.True(t, c.OK)
	require.Empty(t, c.Remedy)

	// The driver's libraries in a folder of their own.
	for _, name := range []string{driverLibrary, managerLibrary} {
		require.NoError(t, os.Remove(m.path("/usr/lib/"+triplet+"/"+name)))
		library(t, m.path("/usr/local/nvidia/lib64/"+name), name)
	}
	c = check()
	require.Contains(t, c.Detail, "need libcuda.so.1, libnvidia-ml.so.1, which")
	require.Equal(t, "for GPU memory: put "+m.path("/usr/local/nvidia/lib64")+" on LD_LIBRARY_PATH", c.Remedy)

	delete(found.files, "uct_cuda")
	require.Contains(t, check().Detail, "no CUDA module")
	found.files["uct_cuda"] = ucx + "/nonexistent.so"
	require.Contains(t, check().Remedy, "install NIXL again")
}
