package zmq

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// settled is how old a directory's time of change must be before it is believed: the system's clock for files has ticks, and a file that appears in the tick in which the
// directory was read changes nothing that could be seen.
const settled = 2 * time.Second

// recheckAfter is how long such a directory is believed all the same.
const recheckAfter = time.Second

// keyTable says which public key belongs to which peer name, one to one. It is never changed once it is made.
type keyTable struct {
	names map[string]string // by key
	keys  map[string]string // by name
}

// authorizedKeys is a directory of public keys: one file for each peer, which has the peer's name and holds its key. Files whose names begin with a dot are passed over. The directory
// is read again when its time of change differs, as when a file was added, removed, or renamed into it; what is written into a file in place shows only then.
//
// The table may be read by any goroutine; all else belongs to one.
type authorizedKeys struct {
	dir   string
	log   *slog.Logger
	table atomic.Pointer[keyTable]

	changed time.Time // the directory's time of change when it was last read
	read    time.Time // when that was
}

// openAuthorizedKeys reads the directory for the first time. A file that is no authorized key is an error.
func openAuthorizedKeys(dir string, log *slog.Logger) (*authorizedKeys, error) {
	a := &authorizedKeys{dir: dir, log: log, read: time.Now()}
	var err error
	if a.changed, err = dirChanged(dir); err != nil {
		return nil, err
	}
	table, bad, err := readKeyTable(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case len(bad) > 1:
		return nil, fmt.Errorf("%w; %d more files are wrong", bad[0], len(bad)-1)
	case len(bad) == 1:
		return nil, bad[0]
	}
	a.table.Store(table)
	return a, nil
}

// owner is the name that a public key belongs to.
func (a *authorizedKeys) owner(key string) (name string, ok bool) {
	name, ok = a.table.Load().names[key]
	return name, ok
}

// isOf reports whether a public key belongs to a name.
func (a *authorizedKeys) isOf(name, key string) bool {
	owned, ok := a.table.Load().keys[name]
	return ok && owned == key
}

// check says why a public key is not a name's.
func (a *authorizedKeys) check(name, key string) error {
	owned, ok := a.table.Load().keys[name]
	switch {
	case !ok:
		return fmt.Errorf("%s has no key of the name %q", a.dir, name)
	case owned != key:
		return fmt.Errorf("the key of the name %q in %s is another than the peer's", name, a.dir)
	}
	return nil
}

// refresh reads the directory again if it changed, or may have changed unseen. A file that is no authorized key authorizes nobody; a directory that can't be
// read leaves everything as it was.
func (a *authorizedKeys) refresh(now time.Time) {
	changed, err := dirChanged(a.dir)
	unsure := a.read.Sub(a.changed).Abs() < settled && now.Sub(a.read) >= recheckAfter
	if err == nil && changed.Equal(a.changed) && !unsure {
		return
	}
	var table *keyTable
	var bad []error
	if err == nil {
		table, bad, err = readKeyTable(a.dir)
	}
	if err != nil {
		a.log.Error("CURVE_AUTHORIZED_KEYS_DIR can't be read; the keys that were authorized stay so", "err", err)
		return
	}
	for _, err := range bad {
		a.log.Warn("a file of CURVE_AUTHORIZED_KEYS_DIR authorizes nobody", "err", err)
	}
	a.changed, a.read = changed, now
	a.table.Store(table)
}

// dirChanged is when an entry of the directory was last added, removed or renamed.
func dirChanged(dir string) (time.Time, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return time.Time{}, err
	case !info.IsDir():
		return time.Time{}, fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&0o002 != 0:
		return time.Time{}, fmt.Errorf("%s has mode %04o, which lets every user of this machine authorize keys: run chmod o-w on it", dir, info.Mode().Perm())
	}
	return info.ModTime(), nil
}

// readKeyTable reads a directory. bad has one error for each file that is no authorized key.
func readKeyTable(dir string) (table *keyTable, bad []error, err error) {
	entries, err := os.ReadDir(dir) // in order of name
	if err != nil {
		return nil, nil, err
	}
	table = &keyTable{names: map[string]string{}, keys: map[string]string{}}
	twice := map[string]bool{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		key, err := readAuthorizedKey(dir, name)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		if other, ok := table.names[key]; ok {
			// Whose it is can't be told: it is nobody's.
			bad = append(bad, fmt.Errorf("%s and %s hold the same key: a key belongs to one name", filepath.Join(dir, other), filepath.Join(dir, name)))
			twice[key] = true
			continue
		}
		table.names[key], table.keys[name] = name, key
	}
	for key := range twice {
		delete(table.keys, table.names[key])
		delete(table.names, key)
	}
	return table, bad, nil
}

func readAuthorizedKey(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if strings.HasSuffix(name, secretSuffix) {
		return "", fmt.Errorf("%s: a secret key does not belong among the authorized keys; move it away, and make a new pair if others could read it", path)
	}
	if err := checkKeyName(name); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return readPublicKey(path)
}

// errNoCurve is returned when keys are set and libzmq can't use them.
var errNoCurve = errors.New("this libzmq was built without CURVE: install one that was built with libsodium (see kvbounce doctor), or unset the CURVE settings")
