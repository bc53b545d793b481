package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvbounce/kvbounce/wiring/layout"
)

// maxInputBytes bounds what is read of a file or of standard input: far above the text of the largest message or of a layout with a million pieces.
const maxInputBytes = 64 << 20

// bounded reads at most limit bytes of r; one more is an error.
type bounded struct {
	r     io.Reader
	limit int64 // what is left of it
	most  int64 // what it was
}

func newBounded(r io.Reader, most int64) *bounded { return &bounded{r, most, most} }

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.limit+1 {
		p = p[:b.limit+1]
	}
	n, err := b.r.Read(p)
	if b.limit -= int64(n); b.limit < 0 {
		return 0, fmt.Errorf("the input is longer than %d MiB, which is the most that is read", b.most>>20)
	}
	return n, err
}

// readLayout reads a layout file, or standard input for the path "-". Errors are about the field, and name what is read as name says.
func (a *app) readLayout(field, path, name string) (layout.Layout, error) {
	in := a.in
	if path != "-" {
		file, err := openFile(path)
		if err != nil {
			return layout.Layout{}, &fieldError{field, fmt.Errorf("--%s: %w; want a layout file, JSON or CSV, or - for standard input", field, err)}
		}
		defer file.Close()
		in = file
	}
	text := bufio.NewReader(newBounded(in, maxInputBytes))
	l, err := layout.Read(text, layoutFormat(path, text))
	if err != nil {
		return l, &fieldError{field, fmt.Errorf("%s: %w", name, err)}
	}
	return l, nil
}

// openFile opens a file to read, and no directory.
func openFile(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(fmt.Errorf("%s is a directory", path), file.Close())
	}
	return file, nil
}

// layoutFormat tells the format by the file's name, or by the first character that is neither white space nor a byte order mark.
func layoutFormat(name string, text *bufio.Reader) layout.Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		return layout.JSON
	case ".csv":
		return layout.CSV
	}
	// What is not there or can't be read, layout.Read will say.
	start, _ := text.Peek(text.Size())
	if start = bytes.TrimSpace(bytes.TrimPrefix(start, []byte(layout.BOM))); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		return layout.JSON
	}
	return layout.CSV
}

// argumentOrInput is the argument's text, or for "-" what standard input holds.
func (a *app) argumentOrInput(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	b, err := io.ReadAll(newBounded(a.in, maxInputBytes))
	if err != nil {
		return nil, &fieldError{"input", fmt.Errorf("standard input: %w", err)}
	}
	return b, nil
}
