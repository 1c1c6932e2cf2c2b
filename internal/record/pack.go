package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"time"
)

// Pack returns a history in a tenth of its bytes, for callers that keep very many and read
// none. Unpack returns the same bytes.
//
// A history in Remember's format becomes a list of numbers, with each name once. Any other is
// kept unchanged, so no field of it can be lost.
func Pack(history json.RawMessage) string {
	if len(history) == 0 {
		return ""
	}
	packed := pack(Record{History: history}.Past())
	if string(Unpack(packed)) != string(history) {
		return string(append([]byte{asItIs}, history...))
	}
	return packed
}

// The first byte of a packed history is the format.
const (
	asItIs = iota
	asNumbers
)

// Unpack returns the packed history.
func Unpack(packed string) json.RawMessage {
	switch {
	case packed == "":
		return nil
	case packed[0] == asItIs:
		return json.RawMessage(packed[1:])
	}
	return unpack(packed[1:])
}

// pack writes a number for each field: the difference from a similar earlier field, or a name's
// place among earlier names.
func pack(all []Past) string {
	b := []byte{asNumbers}
	var names []string
	name := func(s string) {
		for i, known := range names {
			if known == s {
				b = binary.AppendUvarint(b, uint64(i))
				return
			}
		}
		b = binary.AppendUvarint(b, uint64(len(names)))
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		names = append(names, s)
	}
	var last Past
	since := int64(0)
	for _, p := range all {
		from := p.From.UnixMilli()
		for _, n := range []int64{p.Token - last.Token, p.Term - last.Term, from - since, p.To.UnixMilli() - from, p.Leases} {
			b = binary.AppendVarint(b, n)
		}
		if p.Leases > 1 {
			b = binary.AppendVarint(b, p.Token-p.First)
		}
		name(p.Holder)
		name(p.How)
		last, since = p, from
	}
	return string(b)
}

// unpack reads pack's output, and nothing else.
func unpack(packed string) json.RawMessage {
	rest := []byte(packed)
	number := func() int64 {
		n, size := binary.Varint(rest)
		rest = rest[size:]
		return n
	}
	length := func() int {
		n, size := binary.Uvarint(rest)
		rest = rest[size:]
		return int(n)
	}
	var names []string
	name := func() string {
		i := length()
		if i == len(names) {
			n := length()
			names = append(names, string(rest[:n]))
			rest = rest[n:]
		}
		return names[i]
	}
	b := []byte{'['}
	var p Past
	for since := int64(0); len(rest) != 0; {
		p.Token += number()
		p.Term += number()
		since += number()
		p.From, p.To = time.UnixMilli(since), time.UnixMilli(since+number())
		if p.Leases = number(); p.Leases > 1 {
			p.First = p.Token - number()
		}
		p.Holder, p.How = name(), name()
		b = append(p.append(b), ',')
	}
	return append(bytes.TrimSuffix(b, []byte(",")), ']')
}
