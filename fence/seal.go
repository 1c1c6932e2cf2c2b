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

// A seal follows your bytes in a fenced object. It must be part of the body, because on S3 and
// in a directory an object's version is a hash of the body alone: the same bytes under another
// token would have an old version, which could revive a former holder's write. So each attempt
// to write has its own random bits (rule A2). The seal is written as blanks, which JSON, YAML,
// TOML, HTML and most text formats allow at the end.
//
// Each seal also names the one that it replaced. So a writer whose write was refused or not
// answered can tell that it never landed, because another write replaced the same seal.
type seal struct {
	kind  kind
	token leasehold.Token
	id    request.ID
	over  request.ID // zero: there was no object, or none with a seal
}

// A kind says what the bytes before the seal are.
type kind byte

const (
	nothing kind = 'n' // none: there is no value, or it was deleted
	inline  kind = 'i' // the value
	apart   kind = 'a' // the location of the value
)

const (
	sealed   = 1 + 8 + 16 + 16                   // size of a seal's fields in bytes
	checked  = sealed + 8                        // and with their checksum
	sealSize = len("\n") + 8*checked + len("\n") // a blank for each bit
)

const zero, one = ' ', '\t'

// add returns body followed by the seal.
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

// check returns the checksum that tells a seal from other blanks, and sealed bytes from edited
// ones.
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

// unseal splits off the seal.
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
