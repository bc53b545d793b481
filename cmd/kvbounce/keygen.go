package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/wiring"
)

// keygenJSON says where the new keys are. The secret one is never printed.
type keygenJSON struct {
	Name       string `json:"name"`
	PublicKey  string `json:"public_key"`
	PublicFile string `json:"public_file"`
	SecretFile string `json:"secret_file"`
}

func (a *app) keygen() *cobra.Command {
	var name, out string
	cmd := &cobra.Command{
		Use:   "keygen --name NAME",
		Short: "Make a pair of CURVE keys for the agents of one name",
		Long: `Make a pair of CURVE keys for the agents of one name, as two files: NAME.secret and NAME.

With keys, control messages over ZMQ are encrypted, and an agent accepts those of a name from the holder of the name's key alone.
Nothing is overwritten.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if name == "" {
				return badUsage("name", "--name is missing: want the name of the agent that the keys are for")
			}
			if err := checkName(name); err != nil {
				return err
			}
			if out == "" {
				return badUsage("out", "--out is empty: want the directory to write into")
			}
			pair, err := wiring.WriteKeyPair(out, name)
			if errors.Is(err, fs.ErrExist) { // its sentence says so already
				err = errors.New(strings.TrimSuffix(err.Error(), ": "+fs.ErrExist.Error()))
			}
			if err != nil {
				return &fieldError{"keys", err}
			}
			if a.json {
				return a.print(keygenJSON{name, pair.PublicKey, pair.PublicFile, pair.SecretFile})
			}
			fmt.Fprintf(a.out, `%s  secret: move it to where agents named %q run, and nowhere else;
    there set KVBOUNCE_CURVE_SECRET_KEY_FILE to its path
%s  public: copy it, under this name, into the directory of authorized keys of every agent that exchanges memory with %q;
    there KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR is that directory
`, pair.SecretFile, name, pair.PublicFile, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the name of the agents that the keys are for")
	cmd.Flags().StringVar(&out, "out", ".", "the directory to write into; it is made if need be")
	return cmd
}
