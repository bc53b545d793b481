package config

import "fmt"

// Source is the kind of place that a setting's value came from.
type Source string

// The sources, from the lowest to the highest priority; Derived is a value that follows from other settings.
const (
	FromDefault     Source = "default"
	FromOriginal    Source = "original"
	FromFile        Source = "file"
	FromEnvironment Source = "environment"
	Derived         Source = "derived"
)

// Origin is where a setting's value came from.
type Origin struct {
	Source   Source
	Variable string // of the environment, for FromEnvironment and FromOriginal
	File     string // its path, for FromFile
	Line     int    // in the file, from 1
	Lowered  bool   // the value is less than what was asked for: the arena is too small for it
}

// String is as in "file /etc/kvbounce.yaml line 3".
func (o Origin) String() string {
	text := string(o.Source)
	switch o.Source {
	case FromEnvironment, FromOriginal:
		text += " " + o.Variable
	case FromFile:
		text += fmt.Sprintf(" %s line %d", o.File, o.Line)
	}
	if o.Lowered {
		text += ", lowered to fit ARENA_SIZE"
	}
	return text
}

// Value is one setting as it holds.
type Value struct {
	Setting
	Value  string // as the environment would hold it; "" where nothing is set and nothing follows
	Origin Origin
}

// Resolved are complete, validated settings and where each came from.
type Resolved struct {
	Config   Config
	Values   []Value // in the order of Settings
	Warnings []string
}

// File is a settings file, taken apart: reading and parsing it is for others.
type File struct {
	Path    string
	Entries []Entry
}

// Entry is one line of a settings file. Its key is a setting's name in lower case.
type Entry struct {
	Key   string
	Value string
	Line  int // from 1
}

// FileError is an entry of a settings file that can't be a setting, whatever its value. Bad values are an Error.
type FileError struct {
	Path string
	Line int
	Key  string
	Text string
}

func (e *FileError) Error() string { return fmt.Sprintf("%s line %d: %s", e.Path, e.Line, e.Text) }
