package arrows

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// machineWords are parts of home and work folders, and hosts of package registries: what works only where the file was written, or for
// people who reach the same mirror. They are put together here so that this file does not hold them itself.
func machineWords() []string {
	words := []string{}
	for _, folder := range []string{"work", "root", "home", "Users"} {
		words = append(words, "/"+folder+"/")
	}
	for _, host := range []string{"pypi org", "files pythonhosted org", "proxy golang org", "sum golang org", "registry npmjs org", "deb debian org",
		"archive ubuntu com", "index crates io", "repo maven apache org"} {
		words = append(words, strings.ReplaceAll(host, " ", "."))
	}
	return words
}

func TestNoMachineWords(t *testing.T) {
	files, _ := repository(t)
	for _, f := range files {
		for _, found := range machineWordsIn(f) {
			t.Error(found)
		}
	}
}

func TestNoMachineWordsCatches(t *testing.T) {
	for _, word := range machineWords() {
		found := machineWordsIn(file{path: "docs/x.md", source: []byte("first\nsee " + word + "x\n")})
		require.Len(t, found, 1, word)
		require.Contains(t, found[0], "docs/x.md:2: ")
	}
	require.Empty(t, machineWordsIn(file{path: "docs/x.md", source: []byte("framework/root and $HOME/.nixl.cfg\n")}))
	require.Empty(t, machineWordsIn(file{path: "a.bin", source: []byte("\x00" + machineWords()[0])}), "binary files are not read")
}

func machineWordsIn(f file) (found []string) {
	if bytes.IndexByte(f.source, 0) >= 0 {
		return nil
	}
	for _, word := range machineWords() {
		if at := bytes.Index(f.source, []byte(word)); at >= 0 {
			line := 1 + bytes.Count(f.source[:at], []byte("\n"))
			found = append(found, fmt.Sprintf("%s:%d: holds %q, which means something on one machine only", f.path, line, word))
		}
	}
	return found
}
