package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keygen makes keys and returns where they are.
func keygen(t *testing.T, name string) keygenJSON {
	code, out, errs := command(t, "keygen", "--name", name, "--out", filepath.Join(t.TempDir(), "keys"), "--json")
	require.Equal(t, exitOK, code, errs)
	var k keygenJSON
	require.NoError(t, json.Unmarshal([]byte(out), &k))
	return k
}

// authorize copies public keys into a new directory of authorized keys.
func authorize(t *testing.T, keys ...keygenJSON) (dir string) {
	dir = t.TempDir()
	for _, k := range keys {
		content, err := os.ReadFile(k.PublicFile)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, k.Name), content, 0o644))
	}
	return dir
}

// use makes the environment name keys.
func use(t *testing.T, k keygenJSON, authorized string) {
	t.Setenv("KVBOUNCE_CURVE_SECRET_KEY_FILE", k.SecretFile)
	t.Setenv("KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR", authorized)
}

func TestKeygen(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := command(t, "keygen", "--name", "prefill", "--out", dir)
	require.Equal(t, exitOK, code, errs)
	public, err := os.ReadFile(filepath.Join(dir, "prefill"))
	require.NoError(t, err)
	secret, err := os.ReadFile(filepath.Join(dir, "prefill.secret"))
	require.NoError(t, err)
	require.Len(t, secret, 41)
	for _, said := range []string{filepath.Join(dir, "prefill.secret"), filepath.Join(dir, "prefill"), "KVBOUNCE_CURVE_SECRET_KEY_FILE", "KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR"} {
		require.Contains(t, out, said)
	}
	require.NotContains(t, out, string(secret[:40]))

	code, out, errs = command(t, "keygen", "--name", "prefill", "--out", dir)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, "never overwritten")
	require.Equal(t, 1, strings.Count(errs, "exist"), "said once: %s", errs)
	again, err := os.ReadFile(filepath.Join(dir, "prefill"))
	require.NoError(t, err)
	require.Equal(t, public, again)

	code, out, _ = command(t, "keygen", "--json", "--name", "a/b", "--out", dir)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"field":"keys"`)
	code, _, errs = command(t, "keygen")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--name is missing")
	k := keygen(t, "x")
	require.Equal(t, "x", k.Name)
	require.Len(t, k.PublicKey, 40)
	require.NotContains(t, k.PublicKey, string(secret[:40]))
}

// TestDemoCurve runs the demo's two processes with keys.
func TestDemoCurve(t *testing.T) {
	k := keygen(t, "demo")
	use(t, k, authorize(t, k))
	code, out, errs := command(t, "demo", "--rounds", "1", "--json")
	require.Equal(t, exitOK, code, errs)
	checkDemo(t, out, "nixl", "zmq", 2)

	// Without the name's key among the authorized ones bounce is off, and says why.
	other := keygen(t, "other")
	use(t, k, authorize(t, other))
	code, out, errs = command(t, "demo", "--rounds", "1")
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, `no key of the name "demo"`)

	// A key that others can read is refused before anything starts.
	use(t, k, authorize(t, k))
	require.NoError(t, os.Chmod(k.SecretFile, 0o644))
	code, _, errs = command(t, "demo", "--rounds", "1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "CURVE_SECRET_KEY_FILE: ")
	require.Contains(t, errs, "mode 0644")
}

// Two processes with keys of their own move memory both ways. A third with a key that nobody knows, and a fourth without keys, transfer directly only, and know why.
func TestCurveProcesses(t *testing.T) {
	a, b, stranger := keygen(t, "a"), keygen(t, "b"), keygen(t, "stranger")
	known := authorize(t, a, b)
	start := func(k keygenJSON, authorized string) opened {
		use(t, k, authorized)
		return open(t, k.Name)
	}
	pa, pb, ps := start(a, known), start(b, known), start(stranger, authorize(t, a, b, stranger))
	t.Setenv("KVBOUNCE_CURVE_SECRET_KEY_FILE", "")
	t.Setenv("KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR", "")
	plain := open(t, "plain")
	pa.meet(t, pb)
	pb.meet(t, pa)
	for round := range uint64(2) {
		pa.transfer(t, pb, "bounce", 2*round)
		pb.transfer(t, pa, "bounce", 2*round+1)
	}

	add := func(to, peer opened) reply {
		return to.must(t, call{Op: "add", Desc: peer.Desc, DstBase: peer.DstBase})
	}
	for _, c := range []struct {
		from, to opened
		reason   string
	}{
		{plain, pb, "wants CURVE and this agent has no keys"},
		{pa, plain, "does not speak CURVE"},
		{pa, ps, `no key of the name "stranger"`},
	} {
		r := add(c.from, c.to)
		require.False(t, r.Bounce)
		require.Contains(t, r.Reason, c.reason)
		c.from.transfer(t, c.to, "direct", 10)
		_, err := c.from.do(call{Op: "start", Path: "bounce", Seed: 1, Round: 11})
		require.ErrorContains(t, err, c.reason)
	}
	// The stranger knows b, so its frames are sent, and b's socket refuses them.
	ps.meet(t, pb)
	ps.transfer(t, pb, "direct", 12)
	for _, p := range []opened{pa, pb, ps, plain} {
		require.NoError(t, p.end())
	}
}
