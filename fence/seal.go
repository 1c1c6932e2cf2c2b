package fence

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence/internal/request"
)

// A seal follows the user's bytes in an object that is guarded. It has to be among the
// bytes, because on S3 and in a directory an object's version is a hash of its bytes
// alone: the same bytes under another token would bring an old version back, and with
// it a former holder's write to life. So each attempt to write has random bits of its
// own (rule A2). They are written as blanks, which JSON, YAML, TOML, HTML and most text
// take at their end.
//
// Each seal also names the one it was written over. So a writer whose write was refused, or not
// answered, can tell that it never landed: what it was to replace was replaced by another.
type seal struct {
	kind  kind
	token leasehold.Token
	id    request.ID
	over  request.ID // zero: there was no object, or none with a seal
}

// A kind is what the bytes before the seal are.
type kind byte

const (
	nothing kind = 'n' // none: there is no value, or it was deleted
	inline  kind = 'i' // the value
	apart   kind = 'a' // where the value is
)

const (
	sealed   = 1 + 8 + 16 + 16                   // bytes of a seal's fields
	checked  = sealed + 8                        // and of what they are checked by
	sealSize = len("\n") + 8*checked + len("\n") // a blank for each bit
)

const zero, one = ' ', '\t'

// add returns body with the seal behind it.
func (s seal) add(body []byte) []byte {
	fields := append(make([]byte, 0, checked), byte(s.kind))
	fields = binary.BigEndian.AppendUint64(fields, uint64(s.token)) //nolint:gosec // tokens are positive
	fields = append(append(fields, s.id[:]...), s.over[:]...)
	fields = append(fields, check(body, fields)...)
	all := append(make([]byte, 0, len(body)+sealSize), body...)
	all = append(all, '\n')
	for _, b := range fields {
		for bit := 7; bit >= 0; bit-- {
			blank := byte(zero)
			if b>>bit&1 == 1 {
				blank = one
			}
			all = append(all, blank)
		}
	}
	return append(all, '\n')
}

// check tells a seal from blanks, and the bytes that were sealed from those that
// somebody has edited since.
func check(body, fields []byte) []byte {
	hash := sha256.New()
	hash.Write(fields)
	hash.Write(body)
	return hash.Sum(nil)[:checked-sealed]
}

var (
	errNoSeal = errors.New("it has no seal at its end")
	errBroken = errors.New("its seal does not fit its bytes: it was edited or cut after it was written")
)

// unseal takes the seal off.
func unseal(all []byte) (body []byte, s seal, err error) {
	n := len(all) - sealSize
	if n < 0 || all[n] != '\n' || all[len(all)-1] != '\n' {
		return nil, seal{}, errNoSeal
	}
	body, blanks := all[:n], all[n+1:len(all)-1]
	fields := make([]byte, checked)
	for i, blank := range blanks {
		switch blank {
		case zero:
		case one:
			fields[i/8] |= 0x80 >> (i % 8)
		default:
			return nil, seal{}, errNoSeal
		}
	}
	if !bytes.Equal(fields[sealed:], check(body, fields[:sealed])) {
		return nil, seal{}, errBroken
	}
	s = seal{
		kind: kind(fields[0]), token: leasehold.Token(binary.BigEndian.Uint64(fields[1:])), //nolint:gosec // checked below
		id: request.ID(fields[9:]), over: request.ID(fields[25:]),
	}
	switch {
	case s.token <= 0:
		return nil, seal{}, fmt.Errorf("its seal has the token %d", s.token)
	case s.kind != nothing && s.kind != inline && s.kind != apart:
		return nil, seal{}, fmt.Errorf("its seal is of a kind %q that this version does not know", byte(s.kind))
	}
	return body, s, nil
}
