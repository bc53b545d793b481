package wiring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/kvbounce/kvbounce/adapters/zmq"
	"github.com/kvbounce/kvbounce/core/config"
)

// maxSettingsFile is far longer than any settings file.
const maxSettingsFile = 1 << 20

// ReadSettings puts an agent's settings together from an environment, in the form of os.Environ, and the settings file that it names with KVBOUNCE_CONFIG: see config.Read for
// what counts before what.
func ReadSettings(environ []string) (config.Resolved, error) {
	path := config.FilePath(environ)
	if path == "" {
		return config.Read(environ, config.File{})
	}
	file, err := readSettingsFile(path)
	if err != nil {
		return config.Resolved{}, fmt.Errorf("%sCONFIG: %w", config.Prefix, err)
	}
	return config.Read(environ, file)
}

// CheckKeys reports whether an agent with these settings could use its CURVE keys: it reads the secret key file and the directory of authorized keys.
func CheckKeys(c config.Config) error {
	if c.CurveSecretKeyFile == "" && c.CurveAuthorizedKeysDir == "" {
		return nil
	}
	return zmq.CheckKeys(c.CurveSecretKeyFile, c.CurveAuthorizedKeysDir)
}

// KeyPair says where WriteKeyPair wrote a new pair of keys.
type KeyPair = zmq.KeyPair

// WriteKeyPair makes a pair of CURVE keys for the agents of one name, as files in a directory: NAME.secret and NAME. It overwrites nothing.
func WriteKeyPair(dir, name string) (KeyPair, error) { return zmq.WriteKeyPair(dir, name) }

func readSettingsFile(path string) (config.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return config.File{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSettingsFile+1))
	switch {
	case err != nil:
		return config.File{}, err
	case len(data) > maxSettingsFile:
		return config.File{}, fmt.Errorf("%s is longer than %d bytes: it is no settings file", path, maxSettingsFile)
	}
	return parseSettings(path, data)
}

// parseSettings takes a settings file apart: one YAML mapping from names to plain values. A value is taken as its text, so that YAML's own types change nothing: yes and 010 are
// what they are in the environment.
func parseSettings(path string, data []byte) (config.File, error) {
	file := config.File{Path: path}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF): // nothing but comments
		return file, nil
	case err != nil:
		return file, fmt.Errorf("%s is not YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := documents.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return file, fmt.Errorf("%s holds more than one YAML document, want one", path)
	}
	root := document.Content[0]
	wrong := func(n *yaml.Node, format string, args ...any) (config.File, error) {
		return file, fmt.Errorf("%s line %d: %s", path, n.Line, fmt.Sprintf(format, args...))
	}
	if isPlain(root) && root.ShortTag() == "!!null" {
		return file, nil
	}
	if root.Kind != yaml.MappingNode {
		return wrong(root, "want lines of the form name: value")
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch {
		case !isPlain(key):
			return wrong(key, "a name must be plain text")
		case !isPlain(value):
			return wrong(value, "the value of %q must be plain text, without lists, maps, tags and aliases", key.Value)
		case value.ShortTag() == "!!null":
			return wrong(key, "%q has no value: give it one or leave the line out", key.Value)
		}
		file.Entries = append(file.Entries, config.Entry{Key: key.Value, Value: value.Value, Line: key.Line})
	}
	return file, nil
}

// isPlain reports whether a node is one piece of text and nothing more.
func isPlain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&yaml.TaggedStyle == 0 && n.Anchor == ""
}
