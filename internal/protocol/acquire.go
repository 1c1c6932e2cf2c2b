package protocol

import "github.com/leasehold/leasehold/internal/record"

// want is what the user waits for.
type want int

const (
	nothing want = iota
	atOnce       // the lock, or the word that another has it
	eventually
)

// acquisition is what the user wants of the lock, and was told of it.
type acquisition struct {
	want     want
	watching bool          // look, even if nobody wants the lock
	reported record.Record // the holder that Waiting told of
}
