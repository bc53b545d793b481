package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

const (
	// maxDescriptors of one side are what a call to a worker has room for.
	maxDescriptors = 1 << 20
	// maxBlock is the largest block that is allocated for a side of a layout file. It is written and read whole in each leg of a round.
	maxBlock = 4 << 30
)

// benchLayout makes the preset or reads the file that --layout names, and checks that it can be measured.
func (a *app) benchLayout(f benchFlags) (_ layout.Layout, preset bool, err error) {
	if slices.Contains(layout.Names(), f.layout) {
		l, err := layout.Preset(f.layout, f.seed)
		return l, true, err
	}
	if f.layout != "-" { // which is standard input
		if _, err := os.Stat(f.layout); errors.Is(err, fs.ErrNotExist) {
			return layout.Layout{}, false, badUsage("layout", "--layout is %q, allowed are a file, JSON or CSV, and the presets %s", f.layout, strings.Join(layout.Names(), ", "))
		}
	}
	name := f.layout
	if name == "-" {
		name = "standard input"
	}
	l, err := a.readLayout("layout", f.layout, name)
	if err != nil {
		return l, false, err
	}
	l.Name = name
	if err := f.checkLayout(&l); err != nil {
		return l, false, &fieldError{"layout", fmt.Errorf("%s: %w", name, err)}
	}
	return l, false, nil
}

// checkLayout refuses a file's layout that could not be moved, and drops its device numbers: --memory says where the blocks are.
func (f benchFlags) checkLayout(l *layout.Layout) error {
	for _, side := range []struct {
		name  string
		list  []ports.Descriptor
		block uint64
		place ports.Place
	}{{"src", l.Src, l.SrcBlock, f.memory.place}, {"dst", l.Dst, l.DstBlock, f.to.place}} {
		switch {
		case len(side.list) > maxDescriptors:
			return fmt.Errorf("%s has %d descriptors, allowed are at most %d", side.name, len(side.list), maxDescriptors)
		case side.block > maxBlock:
			return fmt.Errorf("%s ends at byte %d of its block, allowed is at most %d (4 GiB)", side.name, side.block, uint64(maxBlock))
		case side.block == 0:
			return fmt.Errorf("%s holds no bytes", side.name)
		}
		for i, d := range side.list {
			if d.Place.Device != 0 && d.Place.Device != side.place.Device {
				return fmt.Errorf("%s_device is %d, but --memory and --to allocate on %d", side.name, d.Place.Device, side.place.Device)
			}
			side.list[i].Place.Device = 0
		}
	}
	_, err := planAll(plan.New(), l.Src, l.Dst, agent.Limits(0, 0, false), func(*plan.Chunk) {})
	return err
}
