package layout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kvbounce/kvbounce/ports"
)

// Format is how a layout file is written.
type Format string

// The formats of layout files (cli.md, "Layout files").
const (
	// JSON is {"src":[[addr,bytes],…],"dst":[[addr,bytes],…],"src_device":0,"dst_device":0}; the devices may be left out. An addr may also be a string "0x…".
	JSON Format = "json"
	// CSV is a line "src,addr,bytes" or "dst,addr,bytes" for each descriptor; an addr may be 0x…, and the first line may be the header "side,addr,bytes". Blank lines are skipped.
	CSV Format = "csv"
)

// BOM is the byte order mark that some programs put before UTF-8 text; Read skips it.
const BOM = "\ufeff"

// maxLineBytes is far above the longest line that says something: two 20-digit numbers.
const maxLineBytes = 4096

// Read reads a layout file to its end. An error names the line, and the field where one is to blame. Memory is bounded by the file's own size, whatever numbers stand in
// it: SrcBlock and DstBlock are the caller's to judge before it allocates them.
func Read(r io.Reader, format Format) (Layout, error) {
	var l Layout
	var err error
	text := bufio.NewReader(r)
	if start, _ := text.Peek(len(BOM)); string(start) == BOM { // what can't be read, the readers will say
		_, _ = text.Discard(len(BOM))
	}
	switch format {
	case JSON:
		l, err = readJSON(text)
	case CSV:
		l, err = readCSV(text)
	default:
		return Layout{}, fmt.Errorf("layout format %q, want %s or %s", format, JSON, CSV)
	}
	if err != nil {
		return Layout{}, err
	}
	l.SrcBlock, l.DstBlock = extent(l.Src), extent(l.Dst)
	return l, nil
}

func readCSV(r io.Reader) (l Layout, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" || number == 1 && line == "side,addr,bytes" {
			continue
		}
		if err := l.addLine(line); err != nil {
			return Layout{}, fmt.Errorf("layout line %d: %w", number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return Layout{}, fmt.Errorf("layout line %d is longer than %d bytes", number+1, maxLineBytes)
	}
	if lines.Err() != nil {
		return Layout{}, fmt.Errorf("layout line %d: %w", number+1, lines.Err())
	}
	return l, nil
}

// addLine adds the descriptor of one CSV line.
func (l *Layout) addLine(line string) error {
	fields := strings.Split(line, ",")
	if len(fields) != 3 {
		return fmt.Errorf("%d fields, want side,addr,bytes", len(fields))
	}
	addr, err := parseAddr(strings.TrimSpace(fields[1]))
	if err != nil {
		return err
	}
	length, err := parseNumber("bytes", strings.TrimSpace(fields[2]))
	if err != nil {
		return err
	}
	d, err := descriptor(addr, length)
	if err != nil {
		return err
	}
	switch side := strings.TrimSpace(fields[0]); side {
	case "src":
		l.Src = append(l.Src, d)
	case "dst":
		l.Dst = append(l.Dst, d)
	default:
		return fmt.Errorf("side is %s, want src or dst", quote(side))
	}
	return nil
}

func parseNumber(field, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %s, want a whole number from 0 to %d", field, quote(text), uint64(math.MaxUint64))
	}
	return n, nil
}

// parseAddr reads an address, which may be hexadecimal after 0x.
func parseAddr(text string) (uint64, error) {
	digits, ok := cutHexPrefix(text)
	if !ok {
		return parseNumber("addr", text)
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("addr is %s, want 0x and 1 to 16 hexadecimal digits", quote(text))
	}
	return n, nil
}

func cutHexPrefix(text string) (digits string, ok bool) {
	if digits, ok = strings.CutPrefix(text, "0x"); !ok {
		digits, ok = strings.CutPrefix(text, "0X")
	}
	return digits, ok
}

func descriptor(addr, length uint64) (ports.Descriptor, error) {
	d := ports.Descriptor{Addr: addr, Bytes: length}
	if _, ok := d.End(); !ok {
		return d, fmt.Errorf("addr %d + bytes %d does not fit 64 bits", addr, length)
	}
	return d, nil
}

// jsonReader reads a JSON layout token by token, so that errors can say where they are.
type jsonReader struct{ tokens *json.Decoder }

func readJSON(r io.Reader) (Layout, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Layout{}, fmt.Errorf("reading the layout: %w", err)
	}
	j := jsonReader{json.NewDecoder(bytes.NewReader(text))}
	j.tokens.UseNumber()
	l, err := j.layout()
	if err != nil {
		line := 1 + bytes.Count(text[:j.tokens.InputOffset()], []byte("\n"))
		return Layout{}, fmt.Errorf("layout line %d: %w", line, err)
	}
	return l, nil
}

func (j *jsonReader) layout() (l Layout, err error) {
	if err := j.delim("the layout", '{'); err != nil {
		return l, err
	}
	seen := map[string]bool{}
	var srcDevice, dstDevice uint32
	for j.tokens.More() {
		token, err := j.next("a field")
		if err != nil {
			return l, err
		}
		field, _ := token.(string) // the decoder lets nothing else be a key
		if seen[field] {
			return l, fmt.Errorf("%s is there twice", field)
		}
		seen[field] = true
		switch field {
		case "src":
			l.Src, err = j.list(field)
		case "dst":
			l.Dst, err = j.list(field)
		case "src_device":
			srcDevice, err = j.device(field)
		case "dst_device":
			dstDevice, err = j.device(field)
		default:
			err = fmt.Errorf("unknown field %s, want src, dst, src_device or dst_device", quote(field))
		}
		if err != nil {
			return l, err
		}
	}
	if err := j.delim("the layout", '}'); err != nil {
		return l, err
	}
	for _, field := range []string{"src", "dst"} {
		if !seen[field] {
			return l, fmt.Errorf("%s is missing", field)
		}
	}
	if _, err := j.tokens.Token(); !errors.Is(err, io.EOF) {
		return l, errors.New("something follows the layout")
	}
	setDevice(l.Src, srcDevice)
	setDevice(l.Dst, dstDevice)
	return l, nil
}

func setDevice(list []ports.Descriptor, device uint32) {
	for i := range list {
		list[i].Place.Device = device
	}
}

// list reads [[addr,bytes],…].
func (j *jsonReader) list(field string) (list []ports.Descriptor, err error) {
	if err := j.delim(field, '['); err != nil {
		return nil, err
	}
	for j.tokens.More() {
		d, err := j.pair()
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, len(list), err)
		}
		list = append(list, d)
	}
	return list, j.delim(field, ']')
}

func (j *jsonReader) pair() (d ports.Descriptor, err error) {
	if err := j.delim("a descriptor", '['); err != nil {
		return d, err
	}
	addr, err := j.addr()
	if err != nil {
		return d, err
	}
	length, err := j.number("bytes")
	if err != nil {
		return d, err
	}
	if err := j.delim("a descriptor", ']'); err != nil {
		return d, err
	}
	return descriptor(addr, length)
}

func (j *jsonReader) device(field string) (uint32, error) {
	n, err := j.number(field)
	if err == nil && n > math.MaxUint32 {
		err = fmt.Errorf("%s is %d, want at most %d", field, n, uint32(math.MaxUint32))
	}
	return uint32(n), err
}

// addr reads a number, or a string that holds a hexadecimal one: JSON has none of its own.
func (j *jsonReader) addr() (uint64, error) {
	token, err := j.next("addr")
	if err != nil {
		return 0, err
	}
	if text, ok := token.(string); ok {
		if _, hex := cutHexPrefix(text); hex {
			return parseAddr(text)
		}
		return 0, fmt.Errorf(`addr is %s, want a whole number or a string "0x…"`, quote(text))
	}
	return toNumber("addr", token)
}

func (j *jsonReader) number(field string) (uint64, error) {
	token, err := j.next(field)
	if err != nil {
		return 0, err
	}
	return toNumber(field, token)
}

func toNumber(field string, token json.Token) (uint64, error) {
	n, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s is %s, want a whole number", field, show(token))
	}
	return parseNumber(field, n.String())
}

func (j *jsonReader) delim(what string, want json.Delim) error {
	token, err := j.next(what)
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%s: found %s, want %s", what, show(token), want)
	}
	return nil
}

func (j *jsonReader) next(what string) (json.Token, error) {
	token, err := j.tokens.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: the file ends too early", what)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return token, nil
}

// show is a token as an error prints it.
func show(token json.Token) string {
	if s, ok := token.(string); ok {
		return quote(s)
	}
	return cut(fmt.Sprint(token))
}

func quote(s string) string { return strconv.Quote(cut(s)) }

// cut keeps what a file says from filling an error.
func cut(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
