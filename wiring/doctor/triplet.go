package doctor

import "runtime"

// triplet is the name that Debian and Ubuntu give this kind of machine in folders of libraries.
var triplet = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"
