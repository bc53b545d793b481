package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseSizeForms(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "4096": 4096, "007": 7, "1b": 1, "1B": 1,
		"64k": 64 << 10, "64K": 64 << 10, "64KB": 64 << 10, "64kib": 64 << 10,
		"40m": 40 << 20, "40MB": 40 << 20, "40MiB": 40 << 20,
		"2g": 2 << 30, "2Gb": 2 << 30, "2GIB": 2 << 30,
		"18446744073709551615": 1<<64 - 1, "17179869183G": 17179869183 << 30,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseSizeRejects(t *testing.T) {
	for _, text := range []string{"", "K", "-1", "+1", " 1", "1 ", "1 K", "1.5M", "0x10", "1_000", "1T", "1Ki", "1KK", "１"} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, "is not a size", text)
	}
	for _, text := range []string{"18446744073709551616", "17179869184G", "18446744073709551615K", strings.Repeat("9", 400)} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, "does not fit 64 bits", text)
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n") << rapid.SampledFrom([]int{0, 10, 20, 30}).Draw(t, "shift")
		got, err := ParseSize(formatSize(n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	})
}
