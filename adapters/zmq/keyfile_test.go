package zmq

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWriteKeyPair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	pair, err := WriteKeyPair(dir, "prefill-7")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "prefill-7"), pair.PublicFile)
	require.Equal(t, filepath.Join(dir, "prefill-7.secret"), pair.SecretFile)
	for path, mode := range map[string]fs.FileMode{pair.PublicFile: 0o644, pair.SecretFile: 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm()|mode&0o044, path) // the umask may take more away
	}
	public, err := readPublicKey(pair.PublicFile)
	require.NoError(t, err)
	require.Equal(t, pair.PublicKey, public)
	secret, err := readSecretKey(pair.SecretFile)
	require.NoError(t, err)
	derived, err := publicKeyOf(secret)
	require.NoError(t, err)
	require.Equal(t, public, derived)

	_, err = WriteKeyPair(dir, "prefill-7")
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "never overwritten")
	// Either file in the way leaves nothing of the other behind.
	require.NoError(t, os.Remove(pair.SecretFile))
	_, err = WriteKeyPair(dir, "prefill-7")
	require.ErrorIs(t, err, fs.ErrExist)
	require.NoFileExists(t, pair.SecretFile)
	again, err := readPublicKey(pair.PublicFile)
	require.NoError(t, err)
	require.Equal(t, public, again)
}

func TestKeyNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "../a", "x.secret", "a#b", "a\x00", strings.Repeat("x", 201), "\xff"} {
		_, err := WriteKeyPair(t.TempDir(), name)
		require.Error(t, err, "%q", name)
	}
	for _, name := range []string{"a", "a.b", "secret", "Ä", "a b", strings.Repeat("x", 200)} {
		require.NoError(t, checkKeyName(name), "%q", name)
	}
}

func TestBadKeyFiles(t *testing.T) {
	keys := newKeyring(t, "alice")
	good, err := os.ReadFile(keys.pairs["alice"].SecretFile)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "key")
	set := func(content string, mode fs.FileMode) error {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return CheckKeys(path, keys.dir)
	}
	require.NoError(t, set(string(good), 0o600))
	require.NoError(t, set(strings.TrimSpace(string(good)), 0o440))
	require.NoError(t, set(strings.TrimSpace(string(good))+"\r\n", 0o640))
	for want, err := range map[string]error{
		"mode 0644":                set(string(good), 0o644),
		"mode 0604":                set(string(good), 0o604),
		"mode 0602":                set(string(good), 0o602),
		"this has 0 bytes":         set("", 0o600),
		"this has 41 bytes":        set(" "+strings.TrimSpace(string(good))+"\n", 0o600),
		"this has 4096 bytes":      set(strings.Repeat("x", 100_000), 0o600),
		`which has no '"'`:         set(strings.Repeat(`"`, keyText), 0o600),
		`which has no '\n'`:        set(strings.Repeat("\n", keyText+1), 0o600),
		"stands for none":          set(strings.Repeat("#", keyText), 0o600),
		"no such file":             CheckKeys(path+"x", keys.dir),
		"is not a regular file":    CheckKeys(keys.dir, keys.dir),
		"CURVE_SECRET_KEY_FILE is": CheckKeys("", keys.dir),
		"CURVE_AUTHORIZED_KEYS_DI": CheckKeys(keys.pairs["alice"].SecretFile, ""),
		"is not a directory":       CheckKeys(keys.pairs["alice"].SecretFile, keys.pairs["alice"].SecretFile),
	} {
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "CURVE_")
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), strings.TrimSpace(string(good)), "a secret key in an error")
	}
	_, err = New(Config{Bind: "tcp://127.0.0.1:0", MaxFrame: 1, CurveSecretKeyFile: path, CurveAuthorizedKeysDir: keys.dir})
	require.ErrorContains(t, err, "CURVE_SECRET_KEY_FILE")
}

func TestBadAuthorizedKeys(t *testing.T) {
	for want, spoil := range map[string]func(t *testing.T, k *keyring){
		"the same key": func(t *testing.T, k *keyring) {
			content, err := os.ReadFile(filepath.Join(k.dir, "alice"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(k.dir, "bob"), content, 0o644))
		},
		"a secret key does not belong": func(t *testing.T, k *keyring) {
			content, err := os.ReadFile(k.pairs["alice"].SecretFile)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(k.dir, "alice.secret"), content, 0o600))
		},
		"holds '#'": func(t *testing.T, k *keyring) {
			require.NoError(t, os.WriteFile(filepath.Join(k.dir, "a#b"), []byte(someKey), 0o644))
		},
		"mode 0666":              func(t *testing.T, k *keyring) { require.NoError(t, os.Chmod(filepath.Join(k.dir, "alice"), 0o666)) },
		"authorize keys: run ch": func(t *testing.T, k *keyring) { require.NoError(t, os.Chmod(k.dir, 0o777)) },
		"is not a regular file":  func(t *testing.T, k *keyring) { require.NoError(t, os.Mkdir(filepath.Join(k.dir, "folder"), 0o755)) },
		"1 more files are wrong": func(t *testing.T, k *keyring) {
			require.NoError(t, os.WriteFile(filepath.Join(k.dir, "x"), nil, 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(k.dir, "y"), nil, 0o644))
		},
	} {
		k := newKeyring(t, "alice")
		require.NoError(t, CheckKeys(k.pairs["alice"].SecretFile, k.dir))
		spoil(t, k)
		err := CheckKeys(k.pairs["alice"].SecretFile, k.dir)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "CURVE_AUTHORIZED_KEYS_DIR: ")
		require.NotContains(t, err.Error(), "\n")
	}
}

// While an agent runs, a bad file authorizes nobody and takes nothing from others; two files with one key authorize neither.
func TestAuthorizedKeysAreReadAgain(t *testing.T) {
	k := newKeyring(t, "alice", "bob")
	var log lockedBuffer
	a, err := openAuthorizedKeys(k.dir, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	now := time.Now()
	refresh := func() { now = now.Add(time.Minute); a.refresh(now) }
	owns := func(name string) bool {
		owner, ok := a.owner(k.pairs[name].PublicKey)
		require.Equal(t, ok, a.isOf(name, k.pairs[name].PublicKey))
		require.True(t, !ok || owner == name)
		return ok
	}
	changed := func() { // the directory's time of change, whatever the file system's clock
		require.NoError(t, os.Chtimes(k.dir, now, now))
		refresh()
	}
	k.authorize(t, k.make(t, "carol"))
	require.False(t, owns("carol"))
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "broken"), []byte("half a k"), 0o644))
	require.NoError(t, os.Symlink(k.pairs["alice"].PublicFile, filepath.Join(k.dir, "..data")))
	changed()
	require.True(t, owns("alice") && owns("bob") && owns("carol"))
	require.Contains(t, log.String(), "broken")
	require.NotContains(t, log.String(), "..data")

	content, err := os.ReadFile(filepath.Join(k.dir, "bob"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "robert"), content, 0o644))
	changed()
	require.True(t, owns("alice") && !owns("bob") && owns("carol"))

	// What can't be read leaves everything as it was, and is read when it can be.
	require.NoError(t, os.Remove(filepath.Join(k.dir, "robert")))
	require.NoError(t, os.Rename(k.dir, k.dir+"-away"))
	refresh()
	require.True(t, owns("alice") && !owns("bob"))
	require.Contains(t, log.String(), "can't be read")
	require.NoError(t, os.Rename(k.dir+"-away", k.dir))
	changed()
	require.True(t, owns("alice") && owns("bob"))
}

// A file that comes in the clock tick in which the directory was read is seen all the same.
func TestAuthorizedKeysOfTheSameTick(t *testing.T) {
	k := newKeyring(t, "alice")
	a, err := openAuthorizedKeys(k.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	before := a.changed
	k.authorize(t, k.make(t, "bob"))
	require.NoError(t, os.Chtimes(k.dir, before, before))
	a.refresh(a.read.Add(recheckAfter - 1))
	require.False(t, a.isOf("bob", k.pairs["bob"].PublicKey))
	a.refresh(a.read.Add(recheckAfter))
	require.True(t, a.isOf("bob", k.pairs["bob"].PublicKey))
}

func TestKeyTextIsLibzmqs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOfN(rapid.Byte(), keyBytes, keyBytes).Draw(t, "key"))
		text := zmq4.Z85encode(raw)
		require.NoError(t, checkKey(text))
		require.Equal(t, raw, zmq4.Z85decode(text))
		at := rapid.IntRange(0, keyText-1).Draw(t, "damaged at")
		damaged := text[:at] + string(rune(rapid.Byte().Draw(t, "damage"))) + text[at+1:]
		if checkKey(damaged) == nil {
			require.Equal(t, damaged, zmq4.Z85encode(zmq4.Z85decode(damaged)))
		}
	})
}
