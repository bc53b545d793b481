package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// readElsewhere lists the variables under Prefix that are no settings of an agent: others read them.
func readElsewhere() []string {
	return []string{"NIXL_LIB"}
}

// FromEnv reads the settings from an environment in the form of os.Environ. An empty variable counts as unset.
//
// Bad values under Prefix are errors, all of them joined, each an *Error. Bad values under OriginalPrefix are warnings and leave the
// default, as in the design that the names come from; a name under Prefix wins over its original. Unknown names are one warning for
// each prefix. The Config is validated and complete; with an error it is the zero Config.
func FromEnv(environ []string) (Config, []string, error) {
	env := variables(environ)
	warnings := unknownVariables(env)
	c := Default()
	var errs []error
	bad := map[string]bool{}          // settings of ours that are already reported
	fromOriginal := map[string]bool{} // settings taken from the original's variables
	for _, r := range rows(&c) {
		if value, ok := env[Prefix+r.Name]; ok {
			if !r.field.set(value) {
				bad[r.Name] = true
				errs = append(errs, &Error{Prefix + r.Name, value, r.Rule})
			}
			continue
		}
		value, ok := env[OriginalPrefix+r.OriginalSuffix]
		if !ok || r.OriginalSuffix == "" {
			continue
		}
		set, rule := r.field.set, r.Rule
		if r.setOriginal != nil {
			set, rule = r.setOriginal, r.originalRule
		}
		if set(value) {
			fromOriginal[r.Name] = true
		} else {
			err := &Error{OriginalPrefix + r.OriginalSuffix, value, rule}
			warnings = append(warnings, fmt.Sprintf("%s; the default %s is used", err, r.Default))
		}
	}
	for {
		resolved := c
		more, faults := resolved.resolve()
		if dropped := dropOriginals(&c, faults, fromOriginal); len(dropped) > 0 {
			warnings = append(warnings, dropped...)
			continue
		}
		for _, f := range faults {
			if !slices.ContainsFunc(f.settings, func(name string) bool { return bad[name] }) {
				errs = append(errs, f.err)
			}
		}
		if len(errs) > 0 {
			return Config{}, warnings, errors.Join(errs...)
		}
		return resolved, append(warnings, more...), nil
	}
}

// dropOriginals gives the default back to every setting that came from the original's variables and takes part in a fault, and returns
// a warning for each.
func dropOriginals(c *Config, faults []fault, fromOriginal map[string]bool) (warnings []string) {
	for _, f := range faults {
		for _, r := range rows(c) {
			if !fromOriginal[r.Name] || !slices.Contains(f.settings, r.Name) {
				continue
			}
			delete(fromOriginal, r.Name)
			warnings = append(warnings, fmt.Sprintf("%s; %s is ignored, the default %s is used", f.err, OriginalPrefix+r.OriginalSuffix, r.Default))
			r.field.set(r.Default)
		}
	}
	return warnings
}

// variables keeps the set, non-empty variables under the two prefixes; of two with one name the first, as os.Getenv does.
func variables(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix) && !strings.HasPrefix(name, OriginalPrefix) {
			continue
		}
		if _, seen := env[name]; !seen {
			env[name] = value
		}
	}
	for name, value := range env {
		if value == "" {
			delete(env, name)
		}
	}
	return env
}

// unknownVariables returns one warning for each prefix that has names which no setting reads.
func unknownVariables(env map[string]string) (warnings []string) {
	known := map[string]bool{}
	for _, name := range readElsewhere() {
		known[Prefix+name] = true
	}
	for _, s := range Settings() {
		known[Prefix+s.Name] = true
		if s.OriginalSuffix != "" {
			known[OriginalPrefix+s.OriginalSuffix] = true
		}
	}
	for _, prefix := range []string{Prefix, OriginalPrefix} {
		var unknown []string
		for name := range env {
			if strings.HasPrefix(name, prefix) && !known[name] {
				unknown = append(unknown, name)
			}
		}
		if len(unknown) > 0 {
			slices.Sort(unknown)
			warnings = append(warnings, "no setting has these names, they are ignored: "+strings.Join(unknown, ", "))
		}
	}
	return warnings
}
