package peer

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
)

// FuzzAnswer: decode never panics. An answer that it accepts keeps to the stated ranges,
// and is the same when it is encoded and decoded again.
func FuzzAnswer(f *testing.F) {
	for body := range seeds {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		said, err := decode(body)
		if err != nil {
			return
		}
		if err = outOfRange(said); err != nil {
			t.Errorf("%q is accepted, and %v: %+v", body, err, said)
		}
		text, err := json.Marshal(AnswerOf(said))
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(text)
		if err != nil {
			t.Fatalf("%q is answered by %s: %v", body, text, err)
		}
		if want, got := plain(said), plain(again); !reflect.DeepEqual(want, got) {
			t.Errorf("%q means %+v, and answered again %+v", body, want, got)
		}
	})
}

// plain is what is left when all that has two forms has one: times are told in
// milliseconds, and no meta data is as good as empty ones.
func plain(said Leadership) Leadership {
	for _, at := range []*time.Time{&said.AcquiredAt, &said.RenewedAt} {
		*at = at.UTC().Truncate(time.Millisecond)
	}
	if len(said.Meta) == 0 {
		said.Meta = nil
	}
	return said
}

// outOfRange says what of an accepted answer must not have been.
func outOfRange(said Leadership) error {
	switch lease := said.Incarnation != ""; {
	case said.Lock == "" || said.Version == "" || len(said.Version) > 256:
		return errors.New("no lock or version")
	case said.Leading && said.Free:
		return errors.New("it leads and is free")
	case !lease && (said.Leading || said.Free || said.TTL != 0 || said.Holder != "" || said.Token != 0):
		return errors.New("there is something of a lease, and no incarnation")
	case lease && (said.Token < 0 || said.Token == math.MaxInt64 || said.Holder == "" || said.Incarnation == ""):
		return errors.New("it does not say whose lease it is")
	case lease && (said.TTL < time.Millisecond || said.TTL > leasehold.MaxTTL):
		return errors.New("the TTL is out of range")
	case said.Remaining < 0 || said.Remaining > said.TTL || said.Leading != (said.Remaining > 0):
		return errors.New("what remains is out of range")
	case (said.Successor != "" || len(said.Record) > 0 || said.Object != "") && !said.Free:
		return errors.New("it tells of a release and is not free")
	}
	return nil
}
