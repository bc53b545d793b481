//go:build !invariants

package transport

// invariants switches the costly checks on.
const invariants = false
