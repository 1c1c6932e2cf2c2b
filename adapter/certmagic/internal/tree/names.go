package tree

import (
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// A segment of a store's key has at most 200 bytes, and a domain's name alone has up to 253.
const (
	longest = 190
	goesOn  = "%/-" // where a segment was cut: nothing that was escaped has a lone % before a slash
)

// Escape makes of any text a segment that every store keeps (or several, where it is long), and no two alike, not even
// where case is ignored. Small letters, digits, "_", "-", "@" and inner dots stay as they are.
func Escape(text string) string {
	var b strings.Builder
	for i, c := range []byte(text) {
		switch inner := i > 0 && i < len(text)-1; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '@', c == '.' && inner:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	rest, pieces := b.String(), ""
	for ; len(rest) > longest; rest = rest[longest:] {
		pieces += rest[:longest] + goesOn
	}
	return pieces + rest
}

// leaf ends the key of each value, and nothing that was escaped: so no object is where another's directory is, which a
// store in a file system refuses.
const leaf = "="

// objectOf is the key in the store of a value. A path that is not clean is an error: a file system would take several
// of them for one.
func (t *Tree) objectOf(path string) (string, error) {
	if path == "." || !fs.ValidPath(path) {
		return "", fmt.Errorf("%w: a key is a path in valid UTF-8 with no slash at its ends, and without segments "+
			`that are empty, "." or ".."`, store.ErrInvalid)
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i] = Escape(segment)
	}
	object := t.values + strings.Join(segments, "/") + leaf
	return object, store.CheckKey("find", object)
}

// prefixOf is what the keys of all values in a directory begin with: "" is that of all.
func (t *Tree) prefixOf(dir string) (string, error) {
	if dir == "" {
		return t.values, nil
	}
	object, err := t.objectOf(dir)
	return strings.TrimSuffix(object, leaf) + "/", err
}

// pathOf is the inverse of objectOf. It fails for what somebody else has put there.
func (t *Tree) pathOf(object string) (string, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(object, t.values), leaf)
	path, err := url.PathUnescape(strings.ReplaceAll(name, goesOn, ""))
	if err == nil {
		if again, other := t.objectOf(path); other != nil || again != object {
			err = fmt.Errorf("%w: no value has that key", store.ErrInvalid)
		}
	}
	return path, err
}
