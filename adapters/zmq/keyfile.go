package zmq

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvbounce/kvbounce/ports"
)

// secretSuffix ends the names of secret key files that WriteKeyPair makes. No file of a directory of authorized keys may have it, so that a secret
// key that was copied there by mistake is noticed.
const secretSuffix = ".secret"

// maxKeyFile is longer than any key file.
const maxKeyFile = 4096

// readKeyFile reads a file that holds one key and perhaps a line end. Nobody but the owner and the group may have the rights in forbidden.
func readKeyFile(path string, forbidden fs.FileMode) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return "", fmt.Errorf("%s has mode %04o, which lets every user of this machine at it: run chmod o-rwx on it", path, mode)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if err := checkKey(key); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// readSecretKey reads a secret key file. Other users may neither read nor replace it.
func readSecretKey(path string) (secret string, err error) { return readKeyFile(path, 0o007) }

// readPublicKey reads a public key file, which other users may read but not change.
func readPublicKey(path string) (public string, err error) { return readKeyFile(path, 0o002) }

// checkKeyName reports whether a peer's name can be the name of a key file.
func checkKeyName(name string) error {
	if err := ports.ValidateName(name); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(name, "."), strings.ContainsRune(name, '/'), strings.HasSuffix(name, secretSuffix):
		return fmt.Errorf("the name %q can't be a key file's: with CURVE a name holds no '/', does not begin with '.' and does not end in %q", name, secretSuffix)
	}
	return nil
}

// KeyPair says where WriteKeyPair wrote a new pair of keys.
type KeyPair struct {
	PublicKey  string // as Z85 text
	PublicFile string // named as the agent is, as a directory of authorized keys wants it
	SecretFile string
}

// WriteKeyPair makes a pair of CURVE keys for the agents of one name and writes it into a directory, which it makes if need be: the secret key as NAME.secret with
// mode 0600, and the public one as NAME with mode 0644. It overwrites nothing, and leaves nothing behind when it fails.
func WriteKeyPair(dir, name string) (KeyPair, error) {
	if err := checkKeyName(name); err != nil {
		return KeyPair{}, err
	}
	if !HasCurve() {
		return KeyPair{}, errNoCurve
	}
	public, secret, err := zmq4.NewCurveKeypair()
	if err != nil {
		return KeyPair{}, fmt.Errorf("libzmq: making keys: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return KeyPair{}, err
	}
	pair := KeyPair{PublicKey: public, PublicFile: filepath.Join(dir, name), SecretFile: filepath.Join(dir, name+secretSuffix)}
	if err := writeNew(pair.SecretFile, secret, 0o600); err != nil {
		return KeyPair{}, err
	}
	if err := writeNew(pair.PublicFile, public, 0o644); err != nil {
		return KeyPair{}, errors.Join(err, os.Remove(pair.SecretFile))
	}
	return pair, nil
}

// writeNew writes a file that did not exist.
func writeNew(path, key string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is never overwritten: move it away, or choose another directory or name: %w", path, fs.ErrExist)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(key + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
