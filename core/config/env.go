package config

import (
	"slices"
	"strings"
)

// readElsewhere lists the variables under Prefix that are no settings of an agent: others read them.
func readElsewhere() []string {
	return []string{"NIXL_LIB"}
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
