package main

import (
	"fmt"
	"io"
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
