package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the settings table into docs/settings.md")

// docs/settings.md shows the table that the code reads: run "go test ./core/config -update" after a change.
func TestDocumentedTable(t *testing.T) {
	const (
		path  = "../../docs/settings.md"
		begin = "<!-- table: made by go test ./core/config -update -->\n"
		end   = "<!-- end of table -->\n"
	)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), begin)
	require.True(t, ok, "no line %q", begin)
	documented, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "no line %q", end)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+table()+end+after), 0o644))
		return
	}
	require.Equal(t, table(), documented)
}

func table() string {
	var b strings.Builder
	b.WriteString("| `KVBOUNCE_` | default | allowed | `TRTLLM_NIXL_BOUNCE_` |\n|---|---|---|---|\n")
	for _, s := range Settings() {
		original := ""
		if s.OriginalSuffix != "" {
			original = "`" + s.OriginalSuffix + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, s.Default, strings.ReplaceAll(s.Rule, "*", `\*`), original)
	}
	return b.String()
}
