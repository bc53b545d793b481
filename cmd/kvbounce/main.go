// Command kvbounce moves scattered blocks of memory between processes, and shows, plans, decodes and diagnoses what moving them takes.
package main

import (
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams are the command's standard streams.
type streams struct {
	in       io.Reader
	out, err io.Writer
}
