package probe

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"github.com/leasehold/leasehold/store"
)

// A body tells by itself whether it is whole: its last field is a sum of all before it.
const (
	bodyHead  = `{"leasehold-probe":"`
	bodyPad   = `","pad":"`
	bodySum   = `","sum":"`
	bodyEnd   = `"}`
	sumDigits = 2 * crc32.Size
)

// smallBody is the size of a body that only has to be new.
const smallBody = len(bodyHead) + 32 + len(bodyPad) + len(bodySum) + sumDigits + len(bodyEnd)

// body is one that no object had before, of the size of a small record.
func (s *survey) body() []byte { return s.bodyOf(smallBody) }

// bodyOf is a new body of that size, or of the smallest that there is.
func (s *survey) bodyOf(size int) []byte {
	return bodyWith(newID(), bytes.Repeat([]byte("x"), max(size-smallBody, 0)))
}

// twins are two new bodies, larger than a record usually is, that differ at the end only.
func (s *survey) twins() [2][]byte {
	const size = 600
	id, pad := newID(), bytes.Repeat([]byte("x"), size)
	one := bodyWith(id, pad)
	pad[size-1] = 'y'
	return [2][]byte{one, bodyWith(id, pad)}
}

func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it never fails, see crypto/rand
	return id
}

func bodyWith(id [16]byte, pad []byte) []byte {
	b := make([]byte, 0, smallBody+len(pad))
	b = append(b, bodyHead...)
	b = hex.AppendEncode(b, id[:])
	b = append(b, bodyPad...)
	b = append(b, pad...)
	b = append(b, bodySum...)
	sum := crc32.ChecksumIEEE(b)
	return fmt.Appendf(b, "%08x%s", sum, bodyEnd)
}

// whole reports that the body is one of bodyOf, from its first byte to its last.
func whole(body []byte) bool {
	if len(body) < smallBody || !bytes.HasPrefix(body, []byte(bodyHead)) || !bytes.HasSuffix(body, []byte(bodyEnd)) {
		return false
	}
	at := len(body) - len(bodyEnd) - sumDigits
	return string(body[at:len(body)-len(bodyEnd)]) == fmt.Sprintf("%08x", crc32.ChecksumIEEE(body[:at]))
}

// A bodyBook has what the probe knows of the bodies that it has written and read.
type bodyBook struct {
	written map[string]lastBody // by key
	reads   int
	spoiled int
	first   string // how the first spoiled one was
}

// lastBody is the last body that was told to have landed, and its version.
type lastBody struct {
	version store.Version
	sum     uint32
}

func (b *bodyBook) wrote(key string, v store.Version, body []byte) {
	if b.written == nil {
		b.written = map[string]lastBody{}
	}
	b.written[key] = lastBody{v, crc32.ChecksumIEEE(body)}
}

// saw checks a body against itself, and against what was written under that version.
func (b *bodyBook) saw(o *store.Object, key string) {
	b.reads++
	said := ""
	if last, known := b.written[key]; !whole(o.Body) {
		said = fmt.Sprintf("it had %d bytes, which are not what was written", len(o.Body))
	} else if known && last.version == o.Version && last.sum != crc32.ChecksumIEEE(o.Body) {
		said = fmt.Sprintf("it was another body than was written as version %s", o.Version)
	}
	if said == "" {
		return
	}
	b.spoiled++
	if b.first == "" {
		b.first = said
	}
}

// wholeBodies says what came of all the reads of the probe.
func (s *survey) wholeBodies() (Result, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := &s.bodies; b.spoiled > 0 {
		return Bad, fmt.Sprintf("%d of %d bodies were not as they were written; of the first, %s", b.spoiled, b.reads, b.first), nil
	}
	return OK, fmt.Sprintf("%d bodies, each as it was written under its version", s.bodies.reads), nil
}
