package config

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes: decimal digits, then nothing, B, or K, M or G (1024 each, also as KB and KiB; in any case).
func ParseSize(text string) (uint64, error) {
	digits := 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	shift, ok := sizeShift(text[digits:])
	if digits == 0 || !ok {
		return 0, fmt.Errorf("%q is not a size: digits, then nothing, K, M or G, as in 4096, 64K or 40MiB", text)
	}
	n, err := strconv.ParseUint(text[:digits], 10, 64)
	if err != nil || bits.LeadingZeros64(n) < shift {
		return 0, fmt.Errorf("size %q does not fit 64 bits", text)
	}
	return n << shift, nil
}

func sizeShift(unit string) (shift int, ok bool) {
	switch strings.ToLower(unit) {
	case "", "b":
		return 0, true
	case "k", "kb", "kib":
		return 10, true
	case "m", "mb", "mib":
		return 20, true
	case "g", "gb", "gib":
		return 30, true
	}
	return 0, false
}

// formatSize writes n in the largest unit that divides it, as ParseSize reads it.
func formatSize(n uint64) string {
	unit := 0
	for n != 0 && n%1024 == 0 && unit < 3 {
		n /= 1024
		unit++
	}
	return strconv.FormatUint(n, 10) + [...]string{"", "K", "M", "G"}[unit]
}
