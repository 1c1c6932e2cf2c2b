package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Records and tables are JSON objects. This file has what their codecs share.

// fields are the members of a JSON object that have not been understood yet.
type fields map[string]json.RawMessage

// readObject reads an object of at most so many bytes, and moves its format out of it.
func readObject(body []byte, most int) (fields, error) {
	if len(body) > most {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(body), most)
	}
	f, err := splitObject(body)
	if err != nil {
		return nil, err
	}
	return f, f.format()
}

// splitObject reads one JSON object. It is stricter than encoding/json: names are compared
// exactly, none may occur twice (which of two tokens would count?), and nothing may follow.
func splitObject(body []byte) (fields, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8 text")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	f := fields{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("its JSON is broken: %w", err)
		}
		name, _ := t.(string) // inside an object, More and Token give names
		if _, twice := f[name]; twice {
			return nil, fmt.Errorf("it has the field %q twice", name)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("its JSON is broken: %w", err)
		}
		f[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("its JSON is broken: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its JSON object")
	}
	return f, nil
}

// Members returns a JSON object's members, read as strictly as a record's.
func Members(body []byte) (map[string]json.RawMessage, error) { return splitObject(body) }

// format moves the format out of f. It fails for a format unknown to this version.
func (f fields) format() error {
	if f.ofS3Lect() {
		return ErrS3Lect
	}
	format, err := f.integer("format")
	switch {
	case err != nil:
		return err
	case format > Format:
		return fmt.Errorf("it has format %d, and this version knows formats up to %d: upgrade leasehold", format, Format)
	case format != Format:
		return fmt.Errorf("it has format %d, which does not exist", format)
	}
	return nil
}

// ErrS3Lect is why a lock file of package s3lect is not a record.
var ErrS3Lect = errors.New("it is a lock file of s3lect, and only programs that use a package of that name can take part in its election")

// ofS3Lect reports whether the object is such a file, written by either package of that name.
func (f fields) ofS3Lect() bool {
	_, format := f["format"]
	_, leader := f["leaderID"]
	_, updated := f["lastUpdated"]
	return !format && leader && updated
}

// integer moves the member name out of f. The number must be written as an integer: leasehold
// writes neither 1e3 nor 1000.0.
func (f fields) integer(name string) (int64, error) {
	raw, ok := f[name]
	if !ok {
		return 0, fmt.Errorf("it has no %s", name)
	}
	delete(f, name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("its %s is not an integer below 2^63: %.40s", name, raw)
	}
	return n, nil
}

// take moves the member name out of f into v, if it exists.
func (f fields) take(name string, v any) error {
	raw, ok := f[name]
	if !ok {
		return nil
	}
	delete(f, name)
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("its %s is not what it should be: %w", name, err)
	}
	return nil
}

// count moves the member name out of f: a number from 1 on, for people only. Like a time, it
// must not make a lock unreadable, so an invalid one counts as absent.
func (f fields) count(name string) int64 {
	n, _ := f.integer(name) // with an error it is 0
	if n < 1 || n > LastToken {
		return 0
	}
	return n
}

func (f fields) rest() map[string]json.RawMessage {
	if len(f) == 0 {
		return nil
	}
	return f
}

// open writes a JSON object without its end. It must consist of texts and numbers.
func open(b *bytes.Buffer, object any) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(object) // it fails for none of these
	b.Truncate(b.Len() - len("}\n"))
}

// appendUnknown writes the unknown fields, in a fixed order.
func appendUnknown(b *bytes.Buffer, unknown map[string]json.RawMessage) {
	if len(unknown) == 0 { // sorting none allocates too, at each renewal
		return
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		fmt.Fprintf(b, ",%s:%s", appendText(nil, name), unknown[name])
	}
}

// appendText writes a text as JSON. Most texts are plain; encoding/json does the others.
func appendText(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // it fails for no text
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// plain reports whether a text is ASCII that JSON does not escape.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func formatTime(t time.Time) string {
	return string(appendTime(make([]byte, 0, len(wireTime)), t))
}

// wireTime is the format of a time in a record.
const wireTime = "2006-01-02T15:04:05.000Z"

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	// This is wireTime's format, but faster: package time has a special case for RFC3339.
	b = t.UTC().AppendFormat(b, time.RFC3339)
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// parseTime is lenient, because the times are for people only: an invalid time must not make a
// lock unreadable.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
