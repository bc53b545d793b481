package host

import "golang.org/x/sys/unix"

// adviseHugePages asks for huge pages. A kernel that was built without them refuses, which costs speed only.
func adviseHugePages(memory []byte) { _ = unix.Madvise(memory, unix.MADV_HUGEPAGE) }
