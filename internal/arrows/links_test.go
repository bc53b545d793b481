package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// brokenLinks returns the relative links of a document that lead nowhere.
func brokenLinks(folder, text string, exists func(string) bool) (broken []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		if !exists(filepath.Join(folder, m[1])) {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// TestLinks holds the links of README and docs against the files that exist.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	documents, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for _, d := range append(documents, more...) {
		text, err := os.ReadFile(d)
		require.NoError(t, err)
		require.Empty(t, brokenLinks(filepath.Dir(d), string(text), exists), d)
	}
}

func TestLinksCatch(t *testing.T) {
	exists := func(path string) bool { return path == "docs/a.md" }
	text := "[a](a.md) [b](a.md#part) [c](b.md) [d](https://example.org/x) [e](../c.md)"
	require.Equal(t, []string{"b.md", "../c.md"}, brokenLinks("docs", text, exists))
}
