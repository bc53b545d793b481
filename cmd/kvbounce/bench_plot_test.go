package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"
)

// texts are the text elements of an SVG, which must be well-formed.
func texts(t *testing.T, path string) (all []string, shapes int) {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	d := xml.NewDecoder(file)
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, shapes
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
			if token.Name.Local == "path" {
				shapes++
			}
		case xml.CharData:
			if inText {
				all = append(all, string(token))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

// Both pictures are written, well-formed, and say what is drawn, in which units.
func TestBenchPlot(t *testing.T) {
	for _, c := range []struct {
		name string
		more []string
		want []string
	}{
		{"times", nil, []string{"tiny: 4096 pieces, 2.0 MiB, memory, dram", "time of a transfer, ms", "transfers that took at most that long, %", "100"}},
		{"rates", []string{"--sweep", "--bytes", "64K", "--pieces", "4K,1K"}, []string{"0.1 MiB in pages in random order, memory, dram", "piece size", "GB/s at the median", "1 KiB", "4 KiB"}},
		{"one size", []string{"--sweep", "--bytes", "64K", "--pieces", "4K"}, []string{"piece size", "4 KiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "picture.svg")
			require.NoError(t, os.WriteFile(path, []byte("an older one"), 0o600))
			code, _, errs := command(t, append([]string{"bench", "--engine", "memory", "--layout", "tiny", "--rounds", "2", "--plot", path}, c.more...)...)
			require.Equal(t, exitOK, code, errs)
			all, shapes := texts(t, path)
			for _, want := range append(c.want, pathBounce, pathDirect) {
				require.Contains(t, all, want)
			}
			require.Greater(t, shapes, 6, "axes, grid and lines")
			files, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, files, 1, "nothing else is left there")
		})
	}
}

// A place where no file can be written is found before any work is done, and probing it leaves nothing.
func TestBenchPlotPlace(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.svg"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link.svg")))
	require.NoError(t, os.Symlink("nothing", filepath.Join(dir, "dangling.svg")))
	for path, want := range map[string]string{
		"nowhere/x.svg": "can't write into its folder: no such file or directory; choose another",
		"file/x.svg":    "not a directory",
		"folder.svg":    "it is there and is no file",
		"link.svg":      "it is a symbolic link; name the file that it leads to",
		"dangling.svg":  "it is a symbolic link",

		strings.Repeat("x", 252) + ".svg": "file name too long; choose a shorter one",
	} {
		t.Run(path, func(t *testing.T) {
			path = filepath.Join(dir, path)
			started := false
			code, out, _ := benchWith(t, func(_, _ *faulty) { started = true }, "--plot", path)
			require.Equal(t, exitFailed, code)
			require.False(t, started)
			field, message := failure(t, out)
			require.Equal(t, "plot", field)
			require.Contains(t, message, "--plot "+path+": ")
			require.Contains(t, message, want)
		})
	}
	require.NoError(t, checkPlotPlace(filepath.Join(dir, "x.svg")))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 4)
}

func TestDistribution(t *testing.T) {
	require.Equal(t, plotter.XYs{{X: 1, Y: 0}, {X: 1, Y: 50}, {X: 3, Y: 50}, {X: 3, Y: 100}}, distribution([]time.Duration{time.Millisecond, 3 * time.Millisecond}))
}

func TestDecimalTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{43, 72, "40 50 70 100"},
		{43, 310, "40 50 70 100 150 200 300 400"},
		{0.131, 205, "0.1 0.2 0.5 1 2 5 10 20 50 100 200 500"},
		{28, 31, "20 30 40"},
		{50, 50, "50 70"},
		{95, 130, "70 100 150"},
		{0.0099, 0.0101, "0.007 0.01 0.015"},
		{1, 5, "1 1.5 2 3 4 5"},
		{100, 100, "100 150"},
	} {
		var labels []string
		last := 0.0
		for _, tick := range decimalTicks(c.low, c.high) {
			require.Greater(t, tick.Value, last)
			last = tick.Value
			labels = append(labels, tick.Label)
		}
		require.Equal(t, c.want, strings.Join(labels, " "), "%g to %g", c.low, c.high)
	}
}

func TestShown(t *testing.T) {
	require.Equal(t, []string{"131.9 µs", "1.00 ms", "204.57 ms"}, []string{shown(131.94), shown(1000), shown(204_567)})
	for bytes, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B", 64 << 10: "64 KiB", 2 << 20: "2 MiB", 3 << 19: "1536 KiB", 25 << 19: "12.5 MiB", 12345: "12.1 KiB", 3 << 30: "3 GiB", 1<<34 + 1: "16.0 GiB",
	} {
		require.Equal(t, want, shownSize(bytes), bytes)
	}
}
