package watchview

import "bytes"

// A Key is what a key means to a view.
type Key uint8

// The keys. Every other one is None.
const (
	None Key = iota
	Up
	Down
	PageUp
	PageDown
	Home
	End
	Quit      // q
	Interrupt // ^C: the terminal sends no signal while a view has it
	Suspend   // ^Z
	Redraw    // ^L
)

// sequences are what terminals send for keys that have no character.
var sequences = []struct {
	text string
	key  Key
}{
	{"\x1b[A", Up},
	{"\x1b[B", Down},
	{"\x1bOA", Up},
	{"\x1bOB", Down},
	{"\x1b[5~", PageUp},
	{"\x1b[6~", PageDown},
	{"\x1b[H", Home},
	{"\x1b[F", End},
	{"\x1bOH", Home},
	{"\x1bOF", End},
	{"\x1b[1~", Home},
	{"\x1b[4~", End},
	{"\x1b[7~", Home},
	{"\x1b[8~", End},
}

var characters = map[byte]Key{
	'q': Quit, 'Q': Quit, 0x03: Interrupt, 0x1a: Suspend, 0x0c: Redraw,
	'k': Up, 'j': Down, 'b': PageUp, ' ': PageDown, 'g': Home, 'G': End,
}

// longestSequence bounds what is kept of a sequence that does not end.
const longestSequence = 32

// Decode gives the keys in what a terminal has sent, and the rest: the beginning of a
// sequence whose end has not been read yet. Sequences that are not known mean nothing; read
// as single characters they would be commands.
func Decode(text []byte) (keys []Key, rest []byte) {
	for len(text) > 0 {
		if text[0] != 0x1b {
			keys = append(keys, characters[text[0]])
			text = text[1:]
			continue
		}
		n := sequence(text)
		if n == 0 {
			if len(text) > longestSequence {
				return keys, nil
			}
			return keys, text
		}
		key := None
		for _, s := range sequences {
			if bytes.Equal(text[:n], []byte(s.text)) {
				key = s.key
			}
		}
		keys = append(keys, key)
		text = text[n:]
	}
	return keys, nil
}

// sequence is the length of the sequence that text begins with, and 0 if its end is not
// there yet.
func sequence(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case 'O': // and one character
		if len(text) < 3 {
			return 0
		}
		return 3
	case '[': // parameters, and one character that ends them
		for i := 2; i < len(text); i++ {
			if text[i] >= 0x40 && text[i] <= 0x7e {
				return i + 1
			}
		}
		return 0
	case 0x1b: // the first was a key by itself
		return 1
	}
	return 2 // with Alt
}
