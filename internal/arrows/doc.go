// Package arrows holds tests about the repository itself: which layer may import which, what core may not do, how long files may be, and
// that no file names a path or host of the machine it was written on. Each rule is also run on a small example that breaks it.
package arrows
