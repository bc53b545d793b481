package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loader looks for shared libraries as the dynamic loader does for a program that starts now (ld.so(8)), without loading any.
type loader struct {
	path     []string            // LD_LIBRARY_PATH
	cache    map[string][]string // from a library's name to files, out of /etc/ld.so.cache
	defaults []string
}

func (m machine) loader() *loader {
	l := &loader{cache: map[string][]string{}}
	if path := m.getenv("LD_LIBRARY_PATH"); path != "" {
		l.path = strings.FieldsFunc(path, func(r rune) bool { return r == ':' || r == ';' })
	}
	if data, err := os.ReadFile(m.path("/etc/ld.so.cache")); err == nil {
		for _, entry := range parseCache(data) {
			l.cache[entry[0]] = append(l.cache[entry[0]], m.path(entry[1]))
		}
	}
	for _, folder := range defaultFolders() {
		l.defaults = append(l.defaults, m.path(folder))
	}
	return l
}

// defaultFolders are those that loaders search last, on the distributions that matter.
func defaultFolders() (folders []string) {
	for _, prefix := range []string{"/lib", "/usr/lib"} {
		folders = append(folders, prefix+"/"+triplet, prefix+"64", prefix)
	}
	return folders
}

// The cache of glibc since 2.2 (dl-cache.h): a header, entries, and the strings that they point to, counted from the header. An older cache may stand before it.
const (
	cacheMagic       = "glibc-ld.so.cache1.1"
	cacheHeaderBytes = 48
	cacheEntryBytes  = 24
	cacheNameAt      = 4 // offsets of the strings' offsets within an entry
	cacheFileAt      = 8
)

// parseCache gives the cache's pairs of name and file. What is damaged is left out.
func parseCache(data []byte) (pairs [][2]string) {
	at := bytes.Index(data, []byte(cacheMagic))
	if at < 0 || len(data)-at < cacheHeaderBytes {
		return nil
	}
	data = data[at:]
	entries := data[cacheHeaderBytes:]
	// The cache is made on the machine that reads it, in its own byte order.
	count := binary.NativeEndian.Uint32(data[len(cacheMagic):])
	for ; count > 0 && len(entries) >= cacheEntryBytes; count-- {
		name, ok1 := cacheString(data, binary.NativeEndian.Uint32(entries[cacheNameAt:]))
		file, ok2 := cacheString(data, binary.NativeEndian.Uint32(entries[cacheFileAt:]))
		if ok1 && ok2 {
			pairs = append(pairs, [2]string{name, file})
		}
		entries = entries[cacheEntryBytes:]
	}
	return pairs
}

func cacheString(data []byte, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(data)) {
		return "", false
	}
	end := bytes.IndexByte(data[at:], 0)
	if end < 0 {
		return "", false
	}
	return string(data[at:][:end]), true
}

// object is what the loader reads of a library or a program.
type object struct {
	class   elf.Class
	machine elf.Machine
	needed  []string
	rpath   []string // searched before LD_LIBRARY_PATH; only without a runpath
	runpath []string // searched after it
}

func readObject(file string) (*object, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &object{class: f.Class, machine: f.Machine}
	if o.needed, err = f.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	origin := filepath.Dir(file)
	if real, err := filepath.EvalSymlinks(file); err == nil {
		origin = filepath.Dir(real)
	}
	folders := func(tag elf.DynTag) (list []string) {
		values, _ := f.DynString(tag) // it has none
		for _, folder := range strings.Split(strings.Join(values, ":"), ":") {
			if folder != "" {
				list = append(list, strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(folder))
			}
		}
		return list
	}
	if o.runpath = folders(elf.DT_RUNPATH); o.runpath == nil {
		o.rpath = folders(elf.DT_RPATH)
	}
	return o, nil
}

// find is the file that the loader would take for a library that the object needs. (The RPATH of whoever loaded the object counts too, which nothing here relies on.)
func (l *loader) find(o *object, name string) (file string, ok bool) {
	inFolders := func(folders []string) (files []string) {
		for _, folder := range folders {
			files = append(files, filepath.Join(folder, name))
		}
		return files
	}
	for _, file := range slices.Concat(inFolders(o.rpath), inFolders(l.path), inFolders(o.runpath), l.cache[name], inFolders(l.defaults)) {
		if o.fits(file) {
			return file, true
		}
	}
	return "", false
}

// fits reports whether a file is a library for the same kind of machine: the loader passes over others.
func (o *object) fits(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == o.class && f.Machine == o.machine
}

// missing are the libraries that the object needs and the loader would not find.
func (l *loader) missing(o *object) (names []string) {
	for _, name := range o.needed {
		if _, ok := l.find(o, name); !ok {
			names = append(names, name)
		}
	}
	return names
}
