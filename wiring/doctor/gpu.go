package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Libraries that UCX's CUDA modules need (gpu.md, "UCX and CUDA libraries at run time").
const (
	driverLibrary  = "libcuda.so.1"
	managerLibrary = "libnvidia-ml.so.1"
	runtimeLibrary = "libcudart.so.12"
)

// driverVersion is the version of NVIDIA's kernel module, "" when it is not loaded.
func (m machine) driverVersion() string {
	first, _, _ := strings.Cut(m.read("/proc/driver/nvidia/version"), "\n")
	for word := range strings.FieldsSeq(first) {
		if word[0] >= '1' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// gpus counts the GPUs by model.
func (m machine) gpus() string {
	models := map[string]int{}
	for _, gpu := range m.names("/proc/driver/nvidia/gpus") {
		for line := range strings.Lines(m.read("/proc/driver/nvidia/gpus/" + gpu + "/information")) {
			if model, ok := strings.CutPrefix(line, "Model:"); ok {
				models[strings.TrimSpace(model)]++
			}
		}
	}
	var parts []string
	for _, model := range slices.Sorted(maps.Keys(models)) {
		parts = append(parts, fmt.Sprintf("%d x %s", models[model], model))
	}
	return strings.Join(parts, ", ")
}

// checkDriver looks for NVIDIA's driver: its kernel module and its library.
func (m machine) checkDriver(l *loader) Check {
	c := Check{Name: "gpu_driver"}
	version, gpus := m.driverVersion(), m.gpus()
	if version != "" {
		c.Found = "driver " + version
	}
	if gpus != "" {
		c.Found += ", " + gpus
	}
	library, ok := "", false
	if self, err := readObject("/proc/self/exe"); err == nil {
		library, ok = l.find(self, driverLibrary)
	}
	switch {
	case version == "" && !ok:
		c.Detail, c.Remedy = "no NVIDIA driver here", "nothing for host memory; for GPU memory install NVIDIA's driver (in a container: start it with its GPUs)"
	case version == "":
		c.Found, c.Detail = library, "the driver's library is here, but its kernel module is not loaded"
		c.Remedy = "load NVIDIA's kernel module (in a container: start it with its GPUs)"
	case !ok:
		c.Detail = "the kernel module is loaded, but the loader does not find " + driverLibrary
		c.Remedy = m.remedyFor([]string{driverLibrary}, "")
	default:
		c.OK, c.Detail = true, library
	}
	return c
}

// checkCUDALibraries finds out whether UCX's CUDA modules can be loaded. Where one can't, UCX goes on without CUDA and says nothing.
func (m machine) checkCUDALibraries(l *loader, found modules) Check {
	c := Check{Name: "ucx_cuda"}
	const effect = "UCX then silently has no CUDA, and NIXL takes GPU memory for host memory (\"VRAM memory is detected as host by UCX\")"
	transport, ok := found.files["uct_cuda"]
	if !ok {
		c.Detail = "this UCX has no CUDA module (libuct_cuda): " + effect
		c.Remedy = "nothing for host memory; for GPU memory install a NIXL whose UCX has CUDA, as the wheel nixl-cu12"
		return c
	}
	var missing []string
	for _, file := range []string{transport, found.files["ucm_cuda"]} {
		if file == "" {
			continue
		}
		o, err := readObject(file)
		if err != nil {
			c.Detail, c.Remedy = fmt.Sprintf("%v: %s", err, effect), "install NIXL again"
			return c
		}
		missing = append(missing, l.missing(o)...)
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if len(missing) > 0 {
		c.Detail = fmt.Sprintf("UCX's CUDA modules need %s, which the loader does not find: %s", strings.Join(missing, ", "), effect)
		c.Remedy = m.remedyFor(missing, found.folder)
		return c
	}
	c.OK, c.Found, c.Detail = true, "loadable", transport
	return c
}

// remedyFor says how the loader comes to find libraries. modules is UCX's folder of modules, "" when that is not known: other wheels are beside NIXL's.
func (m machine) remedyFor(libraries []string, modules string) string {
	var folders, install []string
	for _, name := range libraries {
		if folder := m.folderOf(name, modules); folder != "" {
			folders = append(folders, folder)
			continue
		}
		how := "install the package that has " + name
		switch name {
		case driverLibrary, managerLibrary:
			how = "install NVIDIA's driver (in a container: start it with its GPUs)"
		case runtimeLibrary:
			how = "pip install nvidia-cuda-runtime-cu12 and put its folder nvidia/cuda_runtime/lib on LD_LIBRARY_PATH"
		}
		install = append(install, how)
	}
	slices.Sort(folders)
	var steps []string
	if len(folders) > 0 {
		steps = append(steps, "put "+strings.Join(slices.Compact(folders), ":")+" on LD_LIBRARY_PATH")
	}
	slices.Sort(install)
	steps = append(steps, slices.Compact(install)...)
	return "for GPU memory: " + strings.Join(steps, "; ")
}

// folderOf looks for a library where installers put it without telling the loader.
func (m machine) folderOf(name, modules string) string {
	patterns := []string{
		"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/" + triplet + "/nvidia/current", "/usr/lib64/nvidia", "/usr/lib/nvidia*",
		"/run/opengl-driver/lib", "/usr/local/cuda*/lib64", "/usr/local/cuda*/compat", "/opt/cuda/lib64",
	}
	for i, pattern := range patterns {
		patterns[i] = m.path(pattern)
	}
	if modules != "" {
		// Wheels unpack beside each other: <packages>/nixl_cu12.libs/ucx, <packages>/nvidia/cuda_runtime/lib.
		patterns = append(patterns, filepath.Join(modules, "..", "..", "nvidia", "*", "lib"))
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are well-formed
		if len(files) > 0 {
			return filepath.Dir(files[0])
		}
	}
	return ""
}

// checkCUDABuild: whether this build can gather and scatter device memory.
func (m machine) checkCUDABuild() Check {
	if builtWithCUDA {
		return Check{Name: "cuda_build", OK: true, Found: "with CUDA", Detail: "it gathers and scatters host memory, and GPU memory (--memory vram)"}
	}
	return Check{
		Name:   "cuda_build",
		Detail: "this build has no CUDA: it gathers and scatters host memory only; NVIDIA driver seen: " + cmp.Or(m.driverVersion(), "none"),
		Remedy: "nothing for host memory; for GPU memory build with CUDA: make build-cuda",
	}
}
