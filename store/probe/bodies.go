package probe

import (
	"bytes"
	crand "crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"

	"github.com/leasehold/leasehold/store"
)

// A body has an ID of its own in the midst of what all bodies have.
const (
	bodyHead = `{"leasehold-probe":"`
	bodyPad  = `","pad":"`
	bodyEnd  = `"}`
)

// Small bodies have from leastBody to smallBody bytes, as records of locks do.
const (
	leastBody = len(bodyHead) + 32 + len(bodyPad) + len(bodyEnd)
	smallBody = 400
)

// least is the size of the smallest of the bodies that have up to most bytes. A larger
// one than a record is always nearly as large as it may be.
func least(most int) int {
	if most <= smallBody {
		return leastBody
	}
	return most - most/16
}

// body is one that no object had before, of the size of a small record.
func (s *survey) body() []byte { return s.bodyOf(between(leastBody, smallBody)) }

// bodyOf is a new body of that size, or of the smallest that there is.
func (s *survey) bodyOf(size int) []byte {
	return s.novel(func() []byte {
		var id [16]byte
		_, _ = crand.Read(id[:]) // it never fails, see crypto/rand
		b := bytes.Repeat([]byte("x"), max(size, leastBody))
		_ = append(hex.AppendEncode(append(b[:0], bodyHead...), id[:]), bodyPad...)
		copy(b[len(b)-len(bodyEnd):], bodyEnd)
		return b
	})
}

// bodyOver is a new body of up to most bytes, to be written over one. A server may keep a
// condition only where the two are equally long, say, or make a version of a part of a body
// only. So by chance the new one is shorter, longer, of the same length, or the former one
// with a byte changed, somewhere.
func (s *survey) bodyOver(was []byte, most int) []byte {
	size, least := len(was), least(most)
	if size < least || size > most {
		return s.bodyOf(between(least, most))
	}
	switch rand.IntN(10) {
	case 0, 1:
		return s.bodyOf(between(least, max(size-1, least)))
	case 2, 3:
		return s.bodyOf(between(min(size+1, most), most))
	case 4:
		return s.bodyOf(size)
	}
	return s.changed(was, rand.IntN(places))
}

// The places where a body is changed: in its first bytes, in its last ones, anywhere, and
// anywhere by two bytes that change places.
const (
	atStart = iota
	atEnd
	anywhere
	swapped
	places
)

// changed is a body with the least of changes that makes a new one.
func (s *survey) changed(was []byte, place int) []byte {
	const edge = 8
	return s.novel(func() []byte {
		b := bytes.Clone(was)
		at := rand.IntN(len(b))
		switch place {
		case atStart:
			at %= edge
		case atEnd:
			at = len(b) - 1 - at%edge
		case swapped:
			for range len(b) {
				if other := rand.IntN(len(b)); b[at] != b[other] {
					b[at], b[other] = b[other], b[at]
					return b
				}
			}
		}
		b[at] ^= byte(between(1, math.MaxUint8))
		return b
	})
}

// novel makes a body until it is one that no object had before.
func (s *survey) novel(draw func() []byte) []byte {
	for {
		b := draw()
		sum := crc32.ChecksumIEEE(b)
		s.mu.Lock()
		known := s.bodies.made[sum]
		s.bodies.made[sum] = true
		s.mu.Unlock()
		if !known {
			return b
		}
	}
}

// between draws a number from low to high.
func between(low, high int) int { return low + rand.IntN(max(high-low, 0)+1) }

// A bodyBook has what the probe knows of the bodies that it has written and read.
type bodyBook struct {
	made    map[uint32]bool     // the sums of all bodies
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
	said, sum := "", crc32.ChecksumIEEE(o.Body)
	if last, known := b.written[key]; !b.made[sum] {
		said = fmt.Sprintf("it had %d bytes, which are not what was written", len(o.Body))
	} else if known && last.version == o.Version && last.sum != sum {
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
