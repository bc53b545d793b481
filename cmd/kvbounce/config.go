package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/wiring"
)

type (
	// configJSON are the settings as an agent started here would have them.
	configJSON struct {
		Settings []settingJSON `json:"settings"`
		Warnings []string      `json:"warnings"`
	}
	settingJSON struct {
		Name     string     `json:"name"`
		Variable string     `json:"variable"`
		Value    string     `json:"value"` // as the variable would hold it; "" when nothing is set
		Origin   originJSON `json:"origin"`
		Default  string     `json:"default"`
		Allowed  string     `json:"allowed"`
	}
	originJSON struct {
		Source   string `json:"source"` // default, original, file, environment, derived
		Variable string `json:"variable,omitempty"`
		File     string `json:"file,omitempty"`
		Line     int    `json:"line,omitempty"`
		Lowered  bool   `json:"lowered,omitempty"`
	}
	// checkJSON is the result of --check.
	checkJSON struct {
		OK       bool          `json:"ok"`
		Errors   []settingFlaw `json:"errors"`
		Warnings []string      `json:"warnings"`
	}
	// settingFlaw is what is wrong with one setting.
	settingFlaw struct {
		Setting string `json:"setting"` // "" for a key of a settings file that is no setting's
		Message string `json:"message"`
	}
)

func (a *app) config() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting: its value, where it came from, and its default",
		Long: `Show every setting as an agent started here would have it: its value, where it came from, and its default.

A variable KVBOUNCE_NAME counts before the file that KVBOUNCE_CONFIG names, the file before a variable TRTLLM_NIXL_BOUNCE_NAME, and that before the default.
With --check the CURVE key files are read too, and only what is wrong is printed. Exit code 1: something is wrong.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			settings, err := wiring.ReadSettings(os.Environ())
			if err == nil && check {
				err = wiring.CheckKeys(settings.Config)
			}
			if check {
				return a.printCheck(flaws(err), settings.Warnings)
			}
			if err != nil {
				return a.failSettings(flaws(err))
			}
			if a.json {
				return a.print(newConfigJSON(settings))
			}
			return a.printSettings(settings)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only say what is wrong, key files included")
	return cmd
}

// flaws takes an error of the settings apart: one for each bad setting.
func flaws(err error) []settingFlaw {
	list := []settingFlaw{}
	if err == nil {
		return list
	}
	each := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		each = joined.Unwrap()
	}
	for _, e := range each {
		var bad *config.Error
		setting := ""
		if errors.As(e, &bad) {
			setting = bad.Setting
		} else if before, _, _ := strings.Cut(e.Error(), ":"); isSetting(strings.TrimPrefix(before, config.Prefix)) {
			setting = strings.TrimPrefix(before, config.Prefix) // a file that a setting names
		}
		list = append(list, settingFlaw{setting, e.Error()})
	}
	return list
}

func isSetting(name string) bool {
	for _, s := range config.Settings() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// failSettings prints one sentence for each bad setting; as JSON the first names the field.
func (a *app) failSettings(wrong []settingFlaw) error {
	if a.json {
		messages := make([]string, len(wrong))
		for i, w := range wrong {
			messages[i] = w.Message
		}
		return &fieldError{wrong[0].Setting, errors.New(strings.Join(messages, "; "))}
	}
	for _, w := range wrong {
		fmt.Fprintf(a.err, "kvbounce: %s\n", w.Message)
	}
	return errReported
}

func (a *app) printCheck(wrong []settingFlaw, warnings []string) error {
	if a.json {
		if err := a.print(checkJSON{len(wrong) == 0, wrong, append([]string{}, warnings...)}); err != nil {
			return err
		}
	} else {
		for _, w := range warnings {
			fmt.Fprintf(a.err, "warning: %s\n", w)
		}
	}
	if len(wrong) == 0 {
		if !a.json {
			fmt.Fprintln(a.out, "the settings are valid")
		}
		return nil
	}
	if a.json {
		return errReported
	}
	return a.failSettings(wrong)
}

func newConfigJSON(r config.Resolved) configJSON {
	c := configJSON{Warnings: append([]string{}, r.Warnings...)}
	for _, v := range r.Values {
		o := v.Origin
		c.Settings = append(c.Settings, settingJSON{
			v.Name, config.Prefix + v.Name, v.Value, originJSON{string(o.Source), o.Variable, o.File, o.Line, o.Lowered}, v.Default, v.Rule,
		})
	}
	return c
}

func (a *app) printSettings(r config.Resolved) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "setting\tvalue\tfrom\tdefault")
	for _, v := range r.Values {
		value := v.Value
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, value, v.Origin, v.Default)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(a.err, "warning: %s\n", warning)
	}
	return nil
}
