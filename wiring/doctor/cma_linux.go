package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// yama restricts which process may reach into which; absent where the kernel has no such module.
const yama = "/proc/sys/kernel/yama/ptrace_scope"

// checkProcessCopy: on one machine NIXL moves host memory by process_vm_writev (UCX's transport cma), if it may (nixl.md, 10). refused is copyWithin's error.
func (m machine) checkProcessCopy(refused error) Check {
	c := Check{Name: "process_copy", Found: "process_vm_writev", Detail: "processes of one user on this machine write to each other's memory directly"}
	const slow = "; transfers between processes of this machine go through TCP instead, at less than half the speed"
	if refused != nil {
		c.Found, c.Detail = "", fmt.Sprintf("process_vm_writev is refused: %v%s", refused, slow)
		c.Remedy = "in a container, allow process_vm_readv and process_vm_writev in its seccomp profile, or give it the capability SYS_PTRACE"
		return c
	}
	// At 1, UCX lets its peers in by prctl(PR_SET_PTRACER).
	switch scope := m.read(yama); {
	case scope == "2" && !m.mayTrace():
		c.Remedy = "as root: sysctl kernel.yama.ptrace_scope=1; or give the processes the capability SYS_PTRACE"
	case scope == "3":
		c.Remedy = "set kernel.yama.ptrace_scope to at most 1 where it is set at boot, and restart: 3 can't be taken back"
	default:
		c.OK = true
		return c
	}
	c.Found, c.Detail = "", yama+" is "+m.read(yama)+slow
	return c
}

// mayTrace reports whether this process has CAP_SYS_PTRACE.
func (m machine) mayTrace() bool {
	for line := range strings.Lines(m.read("/proc/self/status")) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && set>>unix.CAP_SYS_PTRACE&1 != 0
		}
	}
	return false
}

// copied is what copyWithin copies: a variable whose address does not change.
var copied struct{ from, to byte }

// copyWithin copies a byte inside this process by the system call that reaches into others, which tells whether it is allowed at all.
func copyWithin() error {
	local := []unix.Iovec{{Base: &copied.from, Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&copied.to)), Len: 1}}
	_, err := unix.ProcessVMWritev(os.Getpid(), local, remote, 0)
	return err
}
