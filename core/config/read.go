package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// configFile is the setting that names the settings file. Only the environment can hold it.
const configFile = "CONFIG"

// FilePath is the settings file that an environment, in the form of os.Environ, names; "" when it names none.
func FilePath(environ []string) string { return variables(environ)[Prefix+configFile] }

// FromEnv is Read without a settings file. An environment that names one is an error.
func FromEnv(environ []string) (Config, []string, error) {
	r, err := Read(environ, File{})
	return r.Config, r.Warnings, err
}

// Read puts the settings together from an environment, in the form of os.Environ, and from the settings file that it names (FilePath); the zero File when it names none.
// A variable under Prefix counts before the file, the file before a variable under OriginalPrefix, and that before the default. An empty variable counts as unset.
//
// Bad values under Prefix and in the file are errors, all of them joined, each an *Error, or a *FileError for a key that is no setting's. Bad values under OriginalPrefix are warnings
// and leave the default, as in the design that the names come from. Unknown variables are one warning for each prefix. With an error the result holds the warnings alone.
func Read(environ []string, file File) (Resolved, error) {
	l := loader{
		config: Default(), env: variables(environ), file: file, inFile: map[string]Entry{},
		origins: map[string]Origin{}, bad: map[string]bool{},
	}
	l.warnings = unknownVariables(l.env)
	l.readFile()
	l.readOriginals()
	l.readOwn()
	return l.finish()
}

// loader is a Read under way.
type loader struct {
	config   Config
	env      map[string]string
	file     File
	inFile   map[string]Entry // by setting
	origins  map[string]Origin
	bad      map[string]bool // settings that are already reported
	warnings []string
	errs     []error
}

// readFile takes the file's entries over, in the order of their lines.
func (l *loader) readFile() {
	table := map[string]row{}
	for _, r := range rows(&l.config) {
		table[r.Name] = r
	}
	for _, e := range l.file.Entries {
		wrong := func(format string, args ...any) {
			l.errs = append(l.errs, &FileError{l.file.Path, e.Line, e.Key, fmt.Sprintf(format, args...)})
		}
		name := strings.ToUpper(e.Key)
		r, known := table[name]
		first, twice := l.inFile[name]
		switch {
		case !known:
			wrong("no setting has the name %q; kvbounce config lists them", e.Key)
			continue
		case strings.ToLower(name) != e.Key:
			wrong("%q is to be written in lower case", e.Key)
			continue
		case name == configFile:
			wrong("a settings file can't name another; %q is for the environment", e.Key)
			continue
		case twice:
			wrong("%q is set again, first in line %d", e.Key, first.Line)
			continue
		}
		l.inFile[name] = e
		l.origins[name] = Origin{Source: FromFile, File: l.file.Path, Line: e.Line}
		if !r.field.set(e.Value) {
			l.report(r, e.Value)
		}
	}
}

// readOriginals takes the original's variables over where nothing of ours sets the same.
func (l *loader) readOriginals() {
	for _, r := range rows(&l.config) {
		value, ok := l.env[OriginalPrefix+r.OriginalSuffix]
		_, own := l.env[Prefix+r.Name]
		_, file := l.inFile[r.Name]
		if !ok || r.OriginalSuffix == "" || own || file {
			continue
		}
		set, form, rule := r.field.set, r.field.form(value), r.Rule
		if r.setOriginal != nil {
			set, form, rule = r.setOriginal, "", r.originalRule
		}
		if set(value) {
			l.origins[r.Name] = Origin{Source: FromOriginal, Variable: OriginalPrefix + r.OriginalSuffix}
			continue
		}
		err := &Error{Setting: r.Name, Variable: OriginalPrefix + r.OriginalSuffix, Value: value, Allowed: rule, Form: form}
		l.warnings = append(l.warnings, fmt.Sprintf("%s; the default %s is used", err, r.Default))
	}
}

// readOwn takes our variables over.
func (l *loader) readOwn() {
	for _, r := range rows(&l.config) {
		value, ok := l.env[Prefix+r.Name]
		if !ok {
			continue
		}
		l.origins[r.Name] = Origin{Source: FromEnvironment, Variable: Prefix + r.Name}
		switch {
		case r.Name == configFile && l.file.Path == "":
			l.bad[r.Name] = true
			l.errs = append(l.errs, &Error{Setting: r.Name, Variable: Prefix + r.Name, Value: value, Allowed: "unset: this program takes its settings from the environment alone"})
		case !r.field.set(value):
			l.report(r, value)
		}
	}
}

func (l *loader) report(r row, value string) {
	l.bad[r.Name] = true
	l.errs = append(l.errs, &Error{Setting: r.Name, Variable: l.variable(r.Name), Value: value, Allowed: r.Rule, Form: r.field.form(value)})
}

// variable names what set a setting in an error; the variable that could, where none did.
func (l *loader) variable(name string) string {
	switch o := l.origins[name]; o.Source {
	case FromFile:
		return fmt.Sprintf("%s (%s line %d)", strings.ToLower(name), o.File, o.Line)
	case FromOriginal:
		return o.Variable
	}
	return Prefix + name
}

// finish checks the rules between settings and fills in what follows from others.
func (l *loader) finish() (Resolved, error) {
	for {
		resolved := l.config
		more, faults := resolved.resolve()
		if l.dropOriginals(faults) {
			continue
		}
		for _, f := range faults {
			if !slices.ContainsFunc(f.settings, func(name string) bool { return l.bad[name] }) {
				l.errs = append(l.errs, f.err)
			}
		}
		if len(l.errs) > 0 {
			return Resolved{Warnings: l.warnings}, errors.Join(l.errs...)
		}
		return Resolved{Config: resolved, Values: l.values(&resolved), Warnings: append(l.warnings, more...)}, nil
	}
}

// dropOriginals gives the default back to every setting that came from the original's variables and takes part in a fault, with a warning for
// each. It reports whether there were any.
func (l *loader) dropOriginals(faults []fault) (dropped bool) {
	for _, f := range faults {
		f.err.Variable = l.variable(f.err.Setting)
		for _, r := range rows(&l.config) {
			if l.origins[r.Name].Source != FromOriginal || !slices.Contains(f.settings, r.Name) {
				continue
			}
			delete(l.origins, r.Name)
			l.warnings = append(l.warnings, fmt.Sprintf("%s; %s is ignored, the default %s is used", f.err, OriginalPrefix+r.OriginalSuffix, r.Default))
			r.field.set(r.Default)
			dropped = true
		}
	}
	return dropped
}

// values says what each setting is and where that came from.
func (l *loader) values(resolved *Config) []Value {
	asked, table := rows(&l.config), rows(resolved)
	values := make([]Value, len(table))
	for i, r := range table {
		changed := r.field.String() != asked[i].field.String()
		origin, ok := l.origins[r.Name]
		if !ok {
			origin.Source = FromDefault
		}
		switch {
		case changed && r.described:
			origin.Source = Derived
		case changed:
			origin.Lowered = true
		}
		value := r.field.String()
		if r.described && r.field.isZero() {
			value = ""
		}
		values[i] = Value{r.Setting, value, origin}
	}
	return values
}
