package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/wiring"
	presets "github.com/kvbounce/kvbounce/wiring/layout"
)

// benchJSON runs bench and reads its result.
func benchJSON(t *testing.T, args ...string) *benchResult {
	t.Helper()
	code, out, errs := command(t, append([]string{"bench", "--json"}, args...)...)
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs)
	r := new(benchResult)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(r), out)
	require.True(t, r.Verified)
	return r
}

// consistent checks what must hold between the figures of one path.
func consistent(t *testing.T, p pathResult, requests int, moved uint64) {
	t.Helper()
	require.Equal(t, requests, p.Requests)
	require.Positive(t, p.Min)
	require.GreaterOrEqual(t, p.P50, p.Min)
	require.GreaterOrEqual(t, p.P99, p.P50)
	require.InEpsilon(t, float64(moved)/1000/p.P50, p.GBps, 1e-9)
}

// The keys that other programs rely on are all there (cli.md).
func TestBenchKeys(t *testing.T) {
	code, out, errs := command(t, "bench", "--json", "--engine", "memory", "--layout", "tiny", "--rounds", "1", "--sweep", "--pieces", "64K")
	require.Equal(t, exitOK, code, errs)
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	for key, inner := range map[string][]string{
		"engine": nil, "control": nil, "memory": nil, "speedup": nil, "verified": nil, "bytes_checked": nil, "data_message_bytes": nil,
		"to_memory": nil, "rounds": nil, "burst": nil, "direct_burst": nil, "prepared": nil, "one_process": nil, "seed": nil,
		"layout":          {"name", "descriptors", "bytes"},
		"bounce":          {"p50_us", "p99_us", "min_us", "gbps", "requests"},
		"direct":          {"p50_us", "p99_us", "min_us", "gbps", "requests"},
		"routed":          {"p50_us", "p99_us", "min_us", "gbps", "requests", "path"},
		"bounce_prepared": {"p50_us", "p99_us", "min_us", "gbps", "requests"},
		"stages_us":       {"plan", "want_grant", "gather", "write", "data_ack"},
	} {
		require.Contains(t, r, key)
		for _, k := range inner {
			require.Contains(t, r[key], k)
		}
	}
	row := r["sweep"].([]any)[0]
	for _, key := range []string{"piece_bytes", "descriptors", "bytes", "bounce", "direct", "speedup"} {
		require.Contains(t, row, key)
	}
}

// Two processes over real NIXL, two agents in one, and the memory engine; each with a plan in Submit and one made beforehand.
func TestBench(t *testing.T) {
	for _, c := range []struct {
		name, engine string
		more         []string
		prepared     bool
	}{
		{"two processes", engineNIXL, nil, false},
		{"one process, prepared", engineNIXL, []string{"--one-process", "--prepared"}, true},
		{"memory", engineMemory, []string{"--engine", "memory"}, false},
		{"memory, prepared", engineMemory, []string{"--engine", "memory", "--prepared"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := benchJSON(t, append(c.more, "--layout", "tiny", "--rounds", "2", "--burst", "3", "--direct-burst", "2")...)
			require.Equal(t, c.engine, r.Engine)
			require.Equal(t, layoutResult{Name: "tiny", Descriptors: 4096, Bytes: 2 << 20}, r.Layout)
			consistent(t, r.Bounce, 2*3, 2<<20)
			consistent(t, r.Direct, 2*2, 2<<20)
			consistent(t, r.Routed.pathResult, 2, 2<<20)
			require.Equal(t, pathBounce, r.Routed.Path)
			require.InEpsilon(t, r.Direct.P50/r.Bounce.P50, r.Speedup, 1e-9)
			require.Equal(t, c.prepared, r.Prepared)
			require.Equal(t, 3, r.Burst)
			l, err := presets.Preset("tiny", 1)
			require.NoError(t, err)
			legs := 3
			if require.Equal(t, c.prepared, r.Planned == nil); !c.prepared {
				legs = 4
				consistent(t, *r.Planned, 2*3, 2<<20)
			}
			require.Equal(t, uint64(legs*(2+warmUps))*l.DstBlock, r.Checked, "each leg's whole destination block, the warm-up's too")
			require.Empty(t, r.Sweep)
		})
	}
}

func TestBenchTable(t *testing.T) {
	code, out, errs := command(t, "bench", "--engine", "memory", "--layout", "tiny", "--rounds", "1", "--sweep", "--bytes", "64K", "--pieces", "1K")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs)
	for _, want := range []string{"tiny: 4096 pieces, 2.0 MiB, one way; engine memory", "least", "bounce, prepared", "routed (bounce)", "all right", "rounds: 1, each of 8 bounces", "direct/bounce", "1 KiB"} {
		require.Contains(t, out, want)
	}
}

func writeFile(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A file's layout moves, also between two processes: cut differently on the two sides, with a gap, and so few pieces that the agent goes directly.
func TestBenchLayoutFile(t *testing.T) {
	for name, text := range map[string]string{
		"pages.csv":  "side,addr,bytes\nsrc,0,100\nsrc,8192,50\ndst,4096,30\ndst,0,120\n",
		"pages.json": `{"src":[[0,100],[8192,50]],"dst":[[4096,30],[0,120]]}`,
		"pages":      `{"src":[[0,100],[8192,50]],"dst":[[4096,30],[0,120]],"dst_device":0}`,
	} {
		t.Run(name, func(t *testing.T) {
			path, engine := writeFile(t, name, text), engineMemory
			if name == "pages.csv" {
				engine = engineNIXL
			}
			r := benchJSON(t, "--engine", engine, "--layout", path, "--rounds", "1", "--burst", "2")
			require.Equal(t, layoutResult{Name: path, Descriptors: 2, Bytes: 150}, r.Layout)
			require.Equal(t, pathDirect, r.Routed.Path)
			require.EqualValues(t, 4*(1+warmUps)*4126, r.Checked)
		})
	}
}

func TestBenchLayoutFromInput(t *testing.T) {
	args := []string{"bench", "--engine", "memory", "--layout", "-", "--rounds", "1"}
	code, out, errs := feed("src,0,100\ndst,0,100\n", args...)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "standard input: 1 pieces, 0.0 MiB")
	code, _, errs = feed("src,0,100\ndst,0,101\n", args...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "standard input: source and destination differ in bytes")
}

func TestBenchBadLayout(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"src,0,100\ndst,0,50\ndst,40,50\n", "destination ranges overlap"},
		{"src,0,100\ndst,0,50\n", "differ in bytes"},
		{"src,5000000000,100\ndst,0,100\n", "src ends at byte 5000000100 of its block, allowed is at most 4294967296 (4 GiB)"},
		{"src,0,100\ndst,5000000000,100\n", "dst ends at byte 5000000100"},
		{"src,0,0\ndst,0,0\n", "src holds no bytes"},
		{"src,0,1\n", "dst holds no bytes"},
		{"", "src holds no bytes"},
		{"src,0\n", "2 fields, want side,addr,bytes"},
		{`{"src":[[0,1]],"dst":[[0,1]],"dst_device":3}`, "dst_device is 3, but --memory and --to allocate on 0"},
		{strings.Repeat("src,0,0\n", maxDescriptors) + "src,0,1\n", "src has 1048577 descriptors, allowed are at most 1048576"},
	} {
		t.Run(c.want, func(t *testing.T) {
			path := writeFile(t, "layout", c.text)
			code, out, _ := command(t, "bench", "--layout", path, "--json")
			require.Equal(t, exitFailed, code)
			field, message := failure(t, out)
			require.Equal(t, "layout", field)
			require.Contains(t, message, path)
			require.Contains(t, message, c.want)
		})
	}
}

func TestBenchBadUsage(t *testing.T) {
	for _, c := range []struct{ args, field, want string }{
		{"--engine rdma", "engine", `allowed are "nixl" and "memory"`},
		{"--engine memory --memory vram", "memory", `allowed with --engine memory is "dram"`},
		{"--engine memory --to vram", "to", `allowed with --engine memory is "dram"`},
		{"--memory tape", "flags", `allowed are "dram", "vram" and "vram:N"`},
		{"--rounds 0", "rounds", "allowed is 1 to 10000"},
		{"--burst 0", "burst", "allowed is 1 to 10000"},
		{"--burst 10001", "burst", "allowed is 1 to 10000"},
		{"--direct-burst -1", "direct-burst", "allowed is 1 to 10000"},
		{"--layout no-such", "layout", "allowed are a file, JSON or CSV, and the presets paged-4k"},
		{"--seed -1", "flags", "want a whole number"},
		{"--bytes 1M", "bytes", "allowed with --sweep only"},
		{"--pieces 1K", "pieces", "allowed with --sweep only"},
		{"--sweep --bytes 2G", "bytes", "allowed is 1 to 1G"},
		{"--sweep --bytes 0", "bytes", "allowed is 1 to 1G"},
		{"--sweep --bytes much", "bytes", "is not a size"},
		{"--sweep --pieces 0", "pieces", "allowed is 1 to 16M"},
		{"--sweep --pieces 4K,17M", "pieces", "allowed is 1 to 16M"},
		{"--sweep --pieces 4K,x", "pieces", "is not a size"},
		{"--sweep --pieces 32 --bytes 72M", "pieces", "allowed are larger pieces, or fewer --bytes"},
		{"--plot picture.png", "plot", "ends in .svg"},
		{"--plot .svg/", "plot", "ends in .svg"},
		{"now", "arguments", "takes no arguments"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"bench"}, strings.Fields(c.args)...)
			code, out, errs := command(t, args...)
			require.Equal(t, exitUsage, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.want)
			require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)
			_, out, _ = command(t, append(args, "--json")...)
			field, _ := failure(t, out)
			require.Equal(t, c.field, field)
		})
	}
}

// A sweep keeps the total and measures both paths for each size.
func TestBenchSweep(t *testing.T) {
	r := benchJSON(t, "--engine", "memory", "--layout", "tiny", "--rounds", "1", "--burst", "2", "--sweep", "--pieces", "1K,64K,3000", "--bytes", "200000")
	require.Len(t, r.Sweep, 3)
	checked := uint64(4*(1+warmUps)) * blockOf(t, 2<<20, 512)
	for i, want := range []struct {
		piece  uint64
		pieces int
	}{{1024, 196}, {65536, 4}, {3000, 67}} {
		row := r.Sweep[i]
		require.Equal(t, want.piece, row.Piece)
		require.Equal(t, want.pieces, row.Descriptors)
		require.EqualValues(t, 200_000, row.Bytes)
		consistent(t, row.Bounce, 2, 200_000)
		consistent(t, row.Direct, 1, 200_000)
		require.InEpsilon(t, row.Direct.P50/row.Bounce.P50, row.Speedup, 1e-9)
		checked += 2 * (1 + warmUps) * blockOf(t, 200_000, want.piece)
	}
	require.Equal(t, checked, r.Checked)
}

func blockOf(t *testing.T, total, page uint64) uint64 {
	t.Helper()
	return presets.Pages(total, page, 1).DstBlock
}

// faulty is a worker that does something wrong.
type faulty struct {
	*worker
	before func(*worker, call) call
	after  func(*worker, call, *reply)
}

func (f *faulty) do(c call) (reply, error) {
	sent := c
	if f.before != nil {
		sent = f.before(f.worker, c)
	}
	r, err := f.worker.do(sent)
	if f.after != nil && err == nil {
		f.after(f.worker, c, &r)
	}
	return r, err
}

// benchWith runs bench in this process with workers that change makes faulty.
func benchWith(t *testing.T, change func(sender, receiver *faulty), args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	a := newApp(streams{in: strings.NewReader(""), out: &o, err: &e})
	a.start = func(f demoFlags, cfg config.Config) ([]party, error) {
		parties, err := a.startParties(f, cfg)
		if err != nil {
			return nil, err
		}
		sender, receiver := &faulty{worker: parties[0].(*worker)}, &faulty{worker: parties[1].(*worker)}
		change(sender, receiver)
		return []party{sender, receiver}, nil
	}
	code = a.run(append([]string{"bench", "--engine", "memory", "--layout", "tiny", "--rounds", "2", "--json"}, args...))
	return code, o.String(), e.String()
}

// One wrong byte, in a page or between pages, in any round and on any path, fails the run. Nothing is printed of it but the error, and no picture is drawn.
func TestBenchCorruptedDestination(t *testing.T) {
	l, err := presets.Preset("tiny", 1)
	require.NoError(t, err)
	gap := newChecker(l.Src, l.Dst, l.DstBlock).gaps[0].Addr
	for _, c := range []struct {
		leg  int // counted over the run: four in a round, in turning order
		at   uint64
		want []string
	}{
		{1, l.Dst[7].Addr + 5, []string{"bounce transfer in round 0 from bench#", "piece 7: byte 5 is"}},
		{6, l.Dst[9].Addr, []string{"direct transfer in round 1 from bench#", "piece 9: byte 0 is"}},
		{7, l.Dst[9].Addr, []string{"bounce_prepared transfer in round 1 from bench#", "piece 9: byte 0 is"}},
		{5, gap, []string{"routed transfer in round 1 from bench#", "belongs to no piece"}},
		{12, l.Dst[0].Addr, []string{"routed transfer in round 2 from bench#", "piece 0: byte 0 is"}},
	} {
		t.Run(c.want[0], func(t *testing.T) {
			checks := 0
			picture := filepath.Join(t.TempDir(), "x.svg")
			code, out, _ := benchWith(t, func(_, receiver *faulty) {
				receiver.before = func(w *worker, order call) call {
					if order.Op == "check" {
						if checks++; checks == c.leg {
							w.dst.Bytes()[c.at] ^= 1
						}
					}
					return order
				}
			}, "--plot", picture)
			require.Equal(t, exitFailed, code)
			_, message := failure(t, out)
			for _, want := range c.want {
				require.Contains(t, message, want)
			}
			require.NoFileExists(t, picture)
		})
	}
}

// A sender that leaves out transfers of a burst is caught although the destination is right.
func TestBenchLeftOutTransfers(t *testing.T) {
	for name, path := range map[string]string{"bounce": pathBounce, "direct": pathDirect} {
		t.Run(name, func(t *testing.T) {
			code, out, _ := benchWith(t, func(sender, _ *faulty) {
				sender.before = func(_ *worker, c call) call {
					if c.Path == path {
						c.Count--
					}
					return c
				}
				sender.after = func(_ *worker, c call, r *reply) {
					if c.Path == path {
						r.Transfers = append(r.Transfers, r.Transfers[0])
					}
				}
			}, "--burst", "3", "--direct-burst", "3")
			require.Equal(t, exitFailed, code)
			_, message := failure(t, out)
			require.Contains(t, message, "that succeeded, where there were 3 "+path+" ones")
		})
	}
}

// What the counters must say, by a table.
func TestEvidence(t *testing.T) {
	good := map[string]uint64{"bounce_succeeded": 2, "bounced_bytes": 200, "writes_posted": 6}
	for _, c := range []struct {
		name      string
		leg       leg
		change    map[string]uint64
		scattered uint64
		bounced   int
		want      string
	}{
		{"right", leg{pathBounce, 2}, nil, 6, 2, ""},
		{"routed", leg{pathRouted, 2}, nil, 6, 2, ""},
		{"all direct", leg{pathRouted, 2}, map[string]uint64{"bounce_succeeded": 0, "bounced_bytes": 0, "writes_posted": 0, "direct_succeeded": 2, "direct_bytes": 200}, 0, 0, ""},
		{"one too few", leg{pathBounce, 3}, nil, 6, 0, "counts 2 bounces and 0 direct transfers that succeeded, where there were 3 bounce ones"},
		{"the other path", leg{pathDirect, 2}, nil, 6, 0, "where there were 2 direct ones"},
		{"bytes missing", leg{pathBounce, 2}, map[string]uint64{"bounced_bytes": 199}, 6, 0, "counts 199 bounced bytes"},
		{"a chunk not scattered", leg{pathBounce, 2}, nil, 5, 0, "counts 5 scattered chunks, where the sender's wrote 6 in 2 bounces"},
		{"uneven", leg{pathBounce, 2}, map[string]uint64{"writes_posted": 5}, 5, 0, "counts 5 scattered chunks"},
		{"none", leg{pathBounce, 2}, map[string]uint64{"writes_posted": 0}, 0, 0, "counts 0 scattered chunks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rose := [2]counts{{}, {"scatters_run": c.scattered}}
			for _, from := range []map[string]uint64{good, c.change} {
				for k, n := range from {
					rose[0][k] = n
				}
			}
			bounced, err := judge(rose[0], rose[1], c.leg, 100)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.bounced, bounced)
		})
	}
}

// The order of the paths turns round, and a warm-up round comes first.
func TestMeasurementOrder(t *testing.T) {
	var paths []string
	code, _, errs := benchWith(t, func(sender, _ *faulty) {
		sender.before = func(_ *worker, c call) call {
			if c.Op == "burst" {
				paths = append(paths, fmt.Sprint(c.Path, " ", c.Prepared, " ", c.Count))
			}
			return c
		}
	}, "--burst", "4")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, []string{
		"bounce false 4", "bounce true 4", "direct false 1", "routed false 1",
		"routed false 1", "direct false 1", "bounce true 4", "bounce false 4",
		"bounce false 4", "bounce true 4", "direct false 1", "routed false 1",
	}, paths)
}

// Once the budget is spent the least rounds are enough, and the progress bar is at its end all the same.
func TestMeasurementBudget(t *testing.T) {
	a := newApp(streams{err: &bytes.Buffer{}})
	parties, err := a.startParties(demoFlags{engine: engineMemory}, testSettings(t))
	require.NoError(t, err)
	m := measurement{
		name: "bench", layout: presets.Pages(4096, 512, 1), legs: []leg{{pathBounce, 2}, {pathDirect, 1}}, senders: []int{0}, rounds: 50, budget: time.Nanosecond,
	}
	m.bar = a.progress(m.steps())
	got, err := m.run(parties)
	require.NoError(t, errors.Join(endAll(parties, err)))
	require.Len(t, got.took[pathBounce], 2*leastRounds)
	require.Len(t, got.took[pathDirect], leastRounds)
	require.True(t, m.bar.IsFinished())
}

func testSettings(t *testing.T) config.Config {
	cfg, err := demoConfig(nil, newApp(streams{}).log)
	require.NoError(t, err)
	return cfg
}

// A burst needs an open worker that knows a peer, as its halves do.
func TestBurstOutOfOrder(t *testing.T) {
	w := &worker{cfg: testSettings(t), world: wiring.NewWorld()}
	for _, op := range []string{"burst", "start", "wait"} {
		_, err := w.do(call{Op: op})
		require.ErrorContains(t, err, op+": it is not open")
	}
	_, err := w.do(call{Op: "open", Name: "bench", Layout: "tiny"})
	require.NoError(t, err)
	for _, op := range []string{"burst", "start"} {
		_, err := w.do(call{Op: op, Count: 1})
		require.ErrorContains(t, err, op+": no peer was added")
	}
	require.NoError(t, w.end())
}
