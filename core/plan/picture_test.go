package plan

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

var update = flag.Bool("update", false, "draw the pictures of docs/planner.md")

// docs/planner-*.svg show what the planner makes of small layouts: run "go test ./core/plan -run Pictures -update" after a change.
func TestPictures(t *testing.T) {
	lists := planes(3, pages(4096, 3, 21, 0, 16, 9, 24, 14, 4, 22, 7, 2, 10, 19, 5, 12, 1, 25, 17, 8, 23, 6, 15, 11, 20), 27*4096)
	for _, p := range []picture{
		{name: "contiguous", title: "Contiguous: one run of one piece", dst: pages(4096, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)},
		{name: "strided", title: "Constant stride: one run", dst: pages(4096, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35)},
		{name: "indexed", title: "Indexed: a page list that three planes share, one table", dst: lists},
		{name: "cut", title: "The same in two chunks: the second begins in the middle of a plane", dst: lists, chunks: 2},
	} {
		t.Run(p.name, func(t *testing.T) {
			path := "../../docs/planner-" + p.name + ".svg"
			drawn := p.draw(t)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(drawn), 0o644))
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(data), drawn)
		})
	}
}

// picture is one small layout's destination and how its chunks' blocks map to it.
type picture struct {
	name, title string
	dst         []ports.Descriptor
	chunks      int
}

// Sizes in pixels. A cell is a page.
const (
	cell    = 12
	margin  = 14
	rowGap  = 64
	textGap = 18
)

var colours = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"}

// draw plans the layout and draws, for each chunk, its block above the destination's memory, a colour for each run, and the runs in words.
func (p picture) draw(t *testing.T) string {
	src := permuted(4096, len(p.dst), 1)
	got, err := planAll(New(), src, p.dst, Limits{ChunkBytes: 1 << 20, Chunks: p.chunks})
	require.NoError(t, err)
	memory := slices.MaxFunc(p.dst, func(a, b ports.Descriptor) int { return int(a.Addr) - int(b.Addr) }).Addr/4096 + 2
	var b strings.Builder
	width := max(2*margin+int(memory)*cell, 560)
	y := margin + 14
	fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", margin, y, p.title)
	for n, c := range got.chunks {
		y += 30
		y = p.drawChunk(t, &b, n, c, int(memory), y)
	}
	height := y + margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">
<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>
%[3]s</svg>
`, width, height, b.String())
}

func (p picture) drawChunk(t *testing.T, b *strings.Builder, n int, c Chunk, memory, y int) int {
	box := func(x, y, cells int, fill string) {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="#555555"/>`+"\n", x, y, cells*cell, cell, fill)
	}
	text := func(x, y int, s string) { fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x, y, s) }
	text(margin, y, fmt.Sprintf("block of chunk %d", n))
	top, bottom := y+6, y+6+rowGap
	for i := range memory {
		box(margin+i*cell, bottom, 1, "#f2f2f2")
	}
	for i, r := range c.Scatter.Runs {
		colour := colours[i%len(colours)]
		for _, piece := range expand(t, r, c.Scatter.Index) {
			from, to, cells := margin+int(piece.offset/4096)*cell, margin+int(piece.addr/4096)*cell, int(piece.length/4096)
			box(from, top, cells, colour)
			box(to, bottom, cells, colour)
			middle := cells * cell / 2
			fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s"/>`+"\n", from+middle, top+cell, to+middle, bottom, colour)
		}
	}
	y = bottom + cell + 14
	text(margin, y, "destination memory, a cell a page of 4096 bytes")
	for i, r := range c.Scatter.Runs {
		y += textGap
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="10" height="10" fill="%s"/>`+"\n", margin, y-9, colours[i%len(colours)])
		table := "none"
		if r.Table != ports.NoTable {
			table = fmt.Sprint(r.Table)
		}
		text(margin+16, y, fmt.Sprintf("offset %d, addr %#x, stride %d, piece %d, pieces %d, step %d, table %s", r.Offset, r.Addr, r.Stride, r.Piece, r.Pieces, r.Step, table))
	}
	if len(c.Scatter.Index) > 0 {
		y += textGap
		text(margin, y, "index: "+strings.Trim(fmt.Sprint(c.Scatter.Index), "[]"))
	}
	y += textGap
	text(margin, y, fmt.Sprintf("DATA: %d bytes; one run for each piece: %d", c.DataBytes(), dataFixedBytes+runBytes*c.Pieces))
	return y
}
