package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// planned is plan's JSON as another program reads it; an unknown or a missing key fails.
func planned(t *testing.T, in string, args ...string) planJSON {
	t.Helper()
	code, out, errs := feed(in, append([]string{"plan", "--json"}, args...)...)
	require.Equal(t, exitOK, code, out)
	require.Empty(t, errs)
	require.Equal(t, 1, strings.Count(out, "\n"))
	var r planJSON
	reader := json.NewDecoder(strings.NewReader(out))
	reader.DisallowUnknownFields()
	require.NoError(t, reader.Decode(&r))
	for _, key := range []string{"descriptors", "bytes", "chunks", "data_bytes", "naive_data_bytes", "plan_us"} {
		require.Contains(t, out, `"`+key+`":`)
	}
	require.Positive(t, r.PlanUS)
	var blocks, data uint64
	for _, c := range r.Chunks {
		blocks, data = blocks+uint64(c.Bytes), data+uint64(c.DataBytes)
		require.Equal(t, wire.DataBytes(c.ScatterRuns, c.Indices), uint64(c.DataBytes), "40 + length of the DATA message")
	}
	require.Equal(t, data, r.DataBytes)
	require.GreaterOrEqual(t, blocks, r.Bytes)
	return r
}

func TestPlanPresets(t *testing.T) {
	for name, pieces := range map[string]uint64{"paged-4k": 18432, "llama70b-tp8": 18880, "vllm-block16": 20032, "strided-heads": 32768, "tiny": 4096, "contiguous": 1024} {
		r := planned(t, "", "--layout", name)
		require.EqualValues(t, pieces, r.Descriptors)
		require.Equal(t, 40*pieces, r.NaiveDataBytes)
		require.Less(t, r.DataBytes, r.NaiveDataBytes)
	}
	require.Equal(t, planned(t, "", "--layout", "tiny", "--seed", "5").Chunks, planned(t, "", "--layout", "tiny", "--seed", "5").Chunks)
	require.NotEqual(t, planned(t, "", "--layout", "tiny", "--runs", "--seed", "5").Chunks, planned(t, "", "--layout", "tiny", "--runs", "--seed", "6").Chunks)
}

// Pages at every other place, then one that is cut differently on the two sides.
const (
	smallCSV  = "side,addr,bytes\nsrc,0,4096\nsrc,8192,4096\nsrc,16384,4096\nsrc,1000000,100\ndst,20480,4096\ndst,12288,4096\ndst,4096,4096\ndst,2000000,60\ndst,3000000,40\n"
	smallJSON = `{"src":[[0,4096],[8192,4096],[16384,4096],[1000000,100]],"dst":[[20480,4096],[12288,4096],[4096,4096],[2000000,60],[3000000,40]],"dst_device":0}`
)

func TestPlanFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	want := planned(t, smallCSV, "--in", "-", "--runs")
	require.Equal(t, 5, want.Descriptors)
	require.EqualValues(t, 3*4096+100, want.Bytes)
	require.EqualValues(t, 40*5, want.NaiveDataBytes)
	require.Len(t, want.Chunks, 1)
	c := want.Chunks[0]
	require.Equal(t, runJSON{Offset: 0, Addr: 0, Stride: 8192, Piece: 4096, Pieces: 3, Step: 4096}, c.Gather[0])
	require.Equal(t, runJSON{Offset: 0, Addr: 20480, Stride: -8192, Piece: 4096, Pieces: 3, Step: 4096}, c.Scatter[0])
	require.Equal(t, []int{len(c.Gather), len(c.Scatter), len(c.ScatterIndex)}, []int{c.GatherRuns, c.ScatterRuns, c.Indices})

	for _, again := range []planJSON{
		planned(t, smallJSON, "--in", "-", "--runs"),
		planned(t, "\n  "+smallJSON, "--in", "-", "--runs"),
		planned(t, "", "--in", file("a.csv", smallCSV), "--runs"),
		planned(t, "", "--in", file("a.JSON", smallJSON), "--runs"),
		planned(t, "", "--in", file("json", smallJSON), "--runs"),
		planned(t, "", "--in", file("csv", smallCSV), "--runs"),
		planned(t, strings.ReplaceAll(smallCSV, ",8192,", ",0x2000,"), "--in", "-", "--runs"),
		planned(t, strings.ReplaceAll(smallJSON, "[8192,", `["0x2000",`), "--in", "-", "--runs"),
	} {
		again.PlanUS = want.PlanUS
		require.Equal(t, want, again)
	}
	code, out, _ := feed(smallCSV, "plan", "--in", "-", "--json")
	require.Equal(t, exitOK, code)
	for _, key := range []string{"gather", "scatter", "gather_index", "scatter_index"} {
		require.NotContains(t, out, `"`+key+`":`)
	}
	code, out, _ = feed(smallCSV, "plan", "--in", "-", "--json", "--runs")
	require.Equal(t, exitOK, code)
	for _, key := range []string{"gather", "scatter", "gather_index", "scatter_index"} {
		require.Contains(t, out, `"`+key+`":[`)
	}
}

// The runs say what the layout says, byte by byte.
func TestPlanRunsAreTheLayout(t *testing.T) {
	l, err := layout.Preset("tiny", 3)
	require.NoError(t, err)
	var places [][2]uint64
	for _, c := range planned(t, "", "--layout", "tiny", "--seed", "3", "--max-chunk", "256K", "--runs").Chunks {
		require.LessOrEqual(t, c.Bytes, uint32(256<<10))
		src, dst := expand(c.Gather, c.GatherIndex), expand(c.Scatter, c.ScatterIndex)
		require.Len(t, dst, len(src))
		for offset := uint64(0); offset < uint64(c.Bytes); offset += 512 {
			places = append(places, [2]uint64{src[offset], dst[offset]})
		}
	}
	require.Len(t, places, len(l.Src))
	for i, p := range places {
		require.Equal(t, [2]uint64{l.Src[i].Addr, l.Dst[i].Addr}, p)
	}
}

// expand gives the address of each 512th byte of a block whose pieces are multiples of that.
func expand(runs []runJSON, index []uint32) map[uint64]uint64 {
	at := map[uint64]uint64{}
	for _, r := range runs {
		for k := range uint64(r.Pieces) {
			factor := int64(k)
			if r.Table != nil {
				factor = int64(index[uint64(*r.Table)+k])
			}
			for b := uint64(0); b < uint64(r.Piece); b += 512 {
				at[r.Offset+k*uint64(r.Step)+b] = r.Addr + uint64(factor*r.Stride) + b
			}
		}
	}
	return at
}

func TestPlanMaxChunk(t *testing.T) {
	for text, limit := range map[string]uint32{"1M": 1 << 20, "96KiB": 96 << 10, "65536": 65536, "4096B": 4096} {
		r := planned(t, "", "--layout", "tiny", "--max-chunk", text)
		require.GreaterOrEqual(t, len(r.Chunks), (2<<20)/int(limit))
		for _, c := range r.Chunks {
			require.LessOrEqual(t, c.Bytes, limit)
		}
	}
	// As an agent cuts it: several chunks although one would do.
	require.Len(t, planned(t, "", "--layout", "paged-4k", "--max-chunk", "1G").Chunks, 9)
	require.Len(t, planned(t, "", "--layout", "paged-4k", "--chunk-target", "36M").Chunks, 2)
	require.Len(t, planned(t, "", "--layout", "paged-4k", "--memory", "vram").Chunks, 2)
}

// A page list that comes back in every layer is sent once a chunk, and the others' runs use it.
func TestPlanTablesAreUsedAgain(t *testing.T) {
	r := planned(t, "", "--layout", "llama70b-tp8", "--runs")
	require.LessOrEqual(t, r.DataBytes, uint64(16<<10))
	for _, c := range r.Chunks {
		require.Less(t, c.Indices, 4*118)
		pieces := uint64(0)
		for _, run := range c.Scatter {
			pieces += uint64(run.Pieces)
			if run.Table != nil {
				require.LessOrEqual(t, uint64(*run.Table)+uint64(run.Pieces), uint64(len(c.ScatterIndex)))
			}
		}
		require.Equal(t, uint64(c.Bytes), 4096*pieces)
		require.NotEmpty(t, c.GatherIndex)
	}
}

func TestPlanTable(t *testing.T) {
	code, out, errs := feed(smallCSV, "plan", "--in", "-", "--runs")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "standard input: 5 descriptors, 12388 bytes (0.01 MiB), planned in")
	require.Contains(t, out, "one run for each piece would take 200\n")
	require.Contains(t, out, "chunk 0, scatter:\n")
	require.Contains(t, out, "-8192")
	code, out, _ = feed("", "plan", "--layout", "paged-4k", "--max-chunk", "256K")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "273 more")
	require.Less(t, strings.Count(out, "\n"), 25)
	code, out, _ = feed("src,0,0\ndst,0,0\n", "plan", "--in", "-", "--json")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, `{"descriptors":1,"bytes":0,"chunks":[],"data_bytes":0,"naive_data_bytes":0,`)
}

func TestPlanNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		in    string
		args  []string
		code  int
		field string
		text  string
	}{
		{"", nil, exitUsage, "in", "--in FILE or --layout PRESET"},
		{"", []string{"--in", "-", "--layout", "tiny"}, exitUsage, "in", "either"},
		{"", []string{"--layout", "nope"}, exitUsage, "layout", "paged-4k"},
		{"", []string{"--layout", "tiny", "--max-chunk", "many"}, exitUsage, "max-chunk", `"many" is not a size`},
		{"", []string{"--layout", "tiny", "--max-chunk", "0"}, exitUsage, "max-chunk", "1 to 4294967295"},
		{"", []string{"--layout", "tiny", "--max-chunk", "4G"}, exitUsage, "max-chunk", "1 to 4294967295"},
		{"", []string{"--layout", "tiny", "--chunk-target", "0"}, exitUsage, "chunk-target", "1 to 4294967295"},
		{"", []string{"--layout", "paged-4k", "--max-chunk", "64"}, exitFailed, "max-chunk", "at most 65536"},
		{"", []string{"tiny"}, exitUsage, "arguments", "no arguments"},
		{"", []string{"--in", "/nonexistent/x.csv"}, exitFailed, "in", "/nonexistent/x.csv"},
		{"src,0,x\n", []string{"--in", "-"}, exitFailed, "in", "line 1: bytes"},
		{"src,0,1\nmid,0,1\n", []string{"--in", "-"}, exitFailed, "in", "line 2: side"},
		{`{"src":[[0,1]],` + "\n" + `"dst":[[0,-1]]}`, []string{"--in", "-"}, exitFailed, "in", "line 2: dst[0]: bytes"},
		{`{"src":[[0,1]]}`, []string{"--in", "-"}, exitFailed, "in", "dst is missing"},
		{"", []string{"--in", "-"}, exitFailed, "in", "standard input lists no src: want at least one addr and bytes on each side"},
		{"side,addr,bytes\n", []string{"--in", "-"}, exitFailed, "in", "standard input lists no src"},
		{"src,0,1\n", []string{"--in", "-"}, exitFailed, "in", "standard input lists no dst"},
		{`{"src":[],"dst":[]}`, []string{"--in", "-"}, exitFailed, "in", "standard input lists no src"},
		{`{"src":[[0,1]],"dst":[]}`, []string{"--in", "-"}, exitFailed, "in", "standard input lists no dst"},
		{"src,0x,8\ndst,0,8\n", []string{"--in", "-"}, exitFailed, "in", `line 1: addr is "0x", want 0x and 1 to 16 hexadecimal digits`},
		{"src,0,8\ndst,0,4\n", []string{"--in", "-"}, exitFailed, "in", "source 8, destination 4"},
		{"src,0,4\nsrc,4,4\ndst,0,4\ndst,2,4\n", []string{"--in", "-"}, exitFailed, "in", "overlap"},
	} {
		t.Run(c.field+" "+c.text, func(t *testing.T) {
			code, out, errs := feed(c.in, append([]string{"plan"}, c.args...)...)
			require.Equal(t, c.code, code)
			require.Empty(t, out)
			require.Contains(t, errs, c.text)
			require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)
			code, out, errs = feed(c.in, append([]string{"plan", "--json"}, c.args...)...)
			require.Equal(t, c.code, code)
			require.Empty(t, errs)
			field, message := failure(t, out)
			require.Equal(t, c.field, field)
			require.Contains(t, message, c.text)
		})
	}
}

// countPieces cuts at both sides' boundaries: as many pieces as there are distinct cuts.
func TestCountPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Uint64Max(5), 0, 20).Draw(t, "src")
		var total uint64
		for _, n := range src {
			total += n
		}
		var dst []uint64
		for left := total; left > 0; {
			n := rapid.Uint64Max(left).Draw(t, "dst")
			dst, left = append(dst, n), left-n
		}
		cuts := map[uint64]bool{}
		list := func(lengths []uint64) (l []ports.Descriptor) {
			var at uint64
			for _, n := range lengths {
				l = append(l, ports.Descriptor{Addr: at, Bytes: n})
				if at += n; at > 0 {
					cuts[at] = true
				}
			}
			return l
		}
		require.EqualValues(t, countPieces(list(src), list(dst)), len(cuts))
	})
}

func TestPlanInputIsBounded(t *testing.T) {
	in := &endless{}
	var out, errs strings.Builder
	require.Equal(t, exitFailed, run([]string{"plan", "--in", "-", "--json"}, streams{in: in, out: &out, err: &errs}))
	_, message := failure(t, out.String())
	require.Contains(t, message, "longer than", "a line without end")
}
