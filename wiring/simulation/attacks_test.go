package simulation

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	attackRow  = regexp.MustCompile(`(?m)^\| (\d+|second \d+) \|(.*)\|$`)
	namedTest  = regexp.MustCompile("`([a-z/]+): (Test[A-Za-z0-9]+)(?:/([^`]+))?`")
	namedStory = regexp.MustCompile("`([a-z0-9-]+\\.txt)`")
)

// TestEveryAttackHasItsTest holds the table at the end of docs/attacks.md against what there is: each sequence has a row, and each test, subtest and story that a row names exists.
func TestEveryAttackHasItsTest(t *testing.T) {
	text, err := os.ReadFile("../../docs/attacks.md")
	require.NoError(t, err)
	rows := map[string]bool{}
	for _, row := range attackRow.FindAllStringSubmatch(string(text), -1) {
		named := 0
		for _, x := range namedTest.FindAllStringSubmatch(row[2], -1) {
			named++
			require.True(t, testExists(t, x[1], x[2], x[3]), "row %s: there is no test %s", row[1], x[0])
		}
		for _, x := range namedStory.FindAllStringSubmatch(row[2], -1) {
			named++
			require.FileExists(t, "testdata/stories/"+x[1], "row %s", row[1])
		}
		require.NotZero(t, named, "row %s names no test", row[1])
		rows[row[1]] = true
	}
	first, second, found := strings.Cut(string(text), "## Second round")
	require.True(t, found)
	for _, x := range regexp.MustCompile(`(?m)^\*\*(\d+)\. `).FindAllStringSubmatch(first, -1) {
		require.True(t, rows[x[1]], "sequence %s has no row", x[1])
	}
	for _, x := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(second, -1) {
		require.True(t, rows["second "+x[1]], "sequence %s of the second round has no row", x[1])
	}
	require.Len(t, rows, 36)
}

// testExists looks for a test function in a package, and for its subtest's name in quotes in that file.
func testExists(t *testing.T, pkg, name, sub string) bool {
	files, err := filepath.Glob("../../" + pkg + "/*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "func "+name+"(") && (sub == "" || strings.Contains(string(text), `"`+sub)) {
			return true
		}
	}
	return false
}
