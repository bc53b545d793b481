package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The picture's size, and colours that people who see few colours can tell apart (Okabe and Ito's).
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4.2 * vg.Inch
	// legendRoom is how far the y axis goes beyond the highest point: the legend lies there and hides nothing.
	legendRoom = 1.2
)

var (
	bounceColor = color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}
	directColor = color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}
	gridColor   = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// checkPlotName says what is wrong with the name of --plot; "" is no plot.
func checkPlotName(name string) error {
	if name != "" && !strings.HasSuffix(name, ".svg") {
		return badUsage("plot", "--plot is %q, allowed is a file name that ends in .svg", name)
	}
	return nil
}

// checkPlotPlace finds out whether the file can be written, and leaves nothing behind.
func checkPlotPlace(name string) error {
	switch info, err := os.Lstat(name); {
	case err == nil && info.Mode().Type() == os.ModeSymlink: // it would be replaced, and what it leads to stay as it is
		return &fieldError{"plot", fmt.Errorf("--plot %s: it is a symbolic link; name the file that it leads to, or choose another name", name)}
	case err == nil && !info.Mode().IsRegular():
		return &fieldError{"plot", fmt.Errorf("--plot %s: it is there and is no file; choose another name", name)}
	case errors.Is(err, syscall.ENAMETOOLONG):
		return &fieldError{"plot", fmt.Errorf("--plot %s: %w; choose a shorter one", name, syscall.ENAMETOOLONG)}
	}
	probe, err := os.CreateTemp(filepath.Dir(name), ".kvbounce-plot-*")
	if err != nil {
		return plotPlaceError(name, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func plotPlaceError(name string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &fieldError{"plot", fmt.Errorf("--plot %s: can't write into its folder: %w; choose another", name, err)}
}

// writePlot draws the result and puts the whole file in its place at once.
func writePlot(name string, r *benchResult, got *measured) (err error) {
	file, err := os.CreateTemp(filepath.Dir(name), ".kvbounce-plot-*")
	if err != nil {
		return plotPlaceError(name, err)
	}
	defer func() {
		if err != nil {
			err = plotPlaceError(name, errors.Join(err, os.Remove(file.Name())))
		}
	}()
	if err := errors.Join(drawPlot(file, r, got), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// drawPlot writes an SVG: the rates of the sweep, or else the distribution of the times.
func drawPlot(out io.Writer, r *benchResult, got *measured) error {
	p := newPlot()
	var err error
	if len(r.Sweep) > 0 {
		p.Title.Text = fmt.Sprintf("%.1f MiB in pages in random order, %s, %s", float64(r.Sweep[0].Bytes)/(1<<20), r.engineName(), r.memory())
		err = drawSweep(p, r.Sweep)
	} else {
		p.Title.Text = fmt.Sprintf("%s: %d pieces, %.1f MiB, %s, %s", r.Layout.Name, r.Layout.Descriptors, float64(r.Layout.Bytes)/(1<<20), r.engineName(), r.memory())
		err = drawDistribution(p, got)
	}
	if err != nil {
		return err
	}
	c := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(c), vg.Points(4), -vg.Points(14), vg.Points(4), -vg.Points(6)))
	var picture bytes.Buffer
	if _, err := c.WriteTo(&picture); err != nil {
		return err
	}
	// Where Liberation is not installed, Arial has the same widths.
	_, err = out.Write(bytes.ReplaceAll(picture.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

func newPlot() *plot.Plot {
	p := plot.New()
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font.Variant = "Sans"
	}
	p.Title.TextStyle.Font.Size = vg.Points(13)
	p.Title.Padding = vg.Points(10)
	p.X.Padding, p.Y.Padding = vg.Points(4), vg.Points(4)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(4)
	p.Legend.Padding = vg.Points(3)
	p.Legend.ThumbnailWidth = vg.Points(24)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	return p
}

// drawSweep draws GB/s over the piece size, which goes in powers of two.
func drawSweep(p *plot.Plot, rows []sweepRow) error {
	p.X.Label.Text, p.Y.Label.Text = "piece size", "GB/s at the median"
	rows = slices.SortedFunc(slices.Values(rows), func(a, b sweepRow) int { return int(a.Piece) - int(b.Piece) })
	var ticks plot.ConstantTicks
	for _, r := range rows {
		ticks = append(ticks, plot.Tick{Value: float64(r.Piece), Label: shownSize(r.Piece)})
	}
	logAxis(&p.X, ticks)
	top := 0.0
	for _, path := range []struct {
		name  string
		color color.Color
		shape draw.GlyphDrawer
		of    func(sweepRow) pathResult
	}{
		{pathBounce, bounceColor, draw.CircleGlyph{}, func(r sweepRow) pathResult { return r.Bounce }},
		{pathDirect, directColor, draw.BoxGlyph{}, func(r sweepRow) pathResult { return r.Direct }},
	} {
		var points plotter.XYs
		for _, r := range rows {
			points = append(points, plotter.XY{X: float64(r.Piece), Y: path.of(r).GBps})
			top = max(top, path.of(r).GBps)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = path.color, vg.Points(2)
		marks.Color, marks.Shape, marks.Radius = path.color, path.shape, vg.Points(3.5)
		p.Add(line, marks)
		p.Legend.Add(path.name, line, marks)
	}
	p.Y.Min, p.Y.Max = 0, top*legendRoom
	p.Legend.Top, p.Legend.Left = true, true
	return nil
}

// drawDistribution draws which share of the transfers took at most how long.
func drawDistribution(p *plot.Plot, got *measured) error {
	p.X.Label.Text, p.Y.Label.Text = "time of a transfer, ms", "transfers that took at most that long, %"
	low, high := math.Inf(1), 0.0
	for _, path := range []struct {
		name  string
		color color.Color
	}{{pathBounce, bounceColor}, {pathDirect, directColor}} {
		took := slices.Sorted(slices.Values(got.took[path.name]))
		low, high = min(low, milliseconds(took[0])), max(high, milliseconds(took[len(took)-1]))
		line, err := plotter.NewLine(distribution(took))
		if err != nil {
			return err
		}
		line.Color, line.Width = path.color, vg.Points(2)
		p.Add(line)
		p.Legend.Add(path.name, line)
	}
	logAxis(&p.X, decimalTicks(low, high))
	p.Y.Min, p.Y.Max = 0, 100*legendRoom
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 100, Label: "100"}}
	p.Legend.Top, p.Legend.Left = true, true
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// distribution is the stairs of sorted times.
func distribution(sorted []time.Duration) (points plotter.XYs) {
	for i, d := range sorted {
		x := milliseconds(d)
		points = append(points,
			plotter.XY{X: x, Y: 100 * float64(i) / float64(len(sorted))},
			plotter.XY{X: x, Y: 100 * float64(i+1) / float64(len(sorted))})
	}
	return points
}

// logAxis makes an axis logarithmic, from its first tick to its last.
func logAxis(a *plot.Axis, ticks plot.ConstantTicks) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, ticks
	a.Min, a.Max = ticks[0].Value, ticks[len(ticks)-1].Value
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// decimalTicks are from the last tick below low to the first that high does not exceed: 1, 2 and 5 times powers of ten, and more between them where low and high are close to each other.
func decimalTicks(low, high float64) (ticks plot.ConstantTicks) {
	steps := []float64{1, 2, 5}
	if high/low < 20 {
		steps = []float64{1, 1.5, 2, 3, 4, 5, 7}
	}
	for decade := math.Floor(math.Log10(low)); ; decade++ {
		for _, s := range steps {
			// Parsed, not multiplied, so that the label is the number.
			v := parseDecimal(s, decade)
			tick := plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)}
			if v <= low {
				ticks = ticks[:0]
			}
			ticks = append(ticks, tick)
			if v >= high && len(ticks) > 1 {
				return ticks
			}
		}
	}
}

func parseDecimal(mantissa, exponent float64) float64 {
	v, _ := strconv.ParseFloat(fmt.Sprintf("%ge%g", mantissa, exponent), 64) // always a number
	return v
}
