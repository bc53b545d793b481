package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machine is what is examined: in tests another folder than the root of the file system.
type machine struct {
	root   string
	getenv func(string) string
}

func (m machine) path(absolute string) string { return filepath.Join(m.root, absolute) }

// read is a file's text without the white space around it; "" when it can't be read.
func (m machine) read(absolute string) string {
	text, err := os.ReadFile(m.path(absolute))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// names are the entries of a folder, sorted.
func (m machine) names(absolute string) (names []string) {
	entries, err := os.ReadDir(m.path(absolute))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

const hugePages = "/sys/kernel/mm/transparent_hugepage/enabled"

// checkHugePages: without huge pages, copies between processes pin 4 KiB at a time (nixl.md, 10).
func (m machine) checkHugePages() Check {
	c := Check{Name: "huge_pages", Detail: "arenas ask for huge pages; without them copies between processes are about a third slower"}
	setting := m.read(hugePages)
	if _, rest, ok := strings.Cut(setting, "["); ok {
		c.Found, _, _ = strings.Cut(rest, "]")
	}
	switch c.Found {
	case "always", "madvise":
		c.OK = true
	case "":
		c.Detail = "this kernel has no transparent huge pages; with them copies between processes are faster by about half"
		c.Remedy = "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"
	default:
		c.Remedy = "as root: echo madvise > " + hugePages
	}
	return c
}

// checkRDMA lists the devices that carry one-sided writes between machines.
func (m machine) checkRDMA() Check {
	const folder = "/sys/class/infiniband"
	devices := m.names(folder)
	if len(devices) == 0 {
		return Check{
			Name: "rdma", Detail: "no device in " + folder + ": between machines NIXL uses TCP, which is slower and needs the target process to run",
			Remedy: "nothing on one machine; between machines, load the driver of an RDMA network card",
		}
	}
	return Check{Name: "rdma", OK: true, Found: strings.Join(devices, ", ")}
}
