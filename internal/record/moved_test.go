package record_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// TestMovedRecords: what is sealed or closed is told with what it says, and is not understood by whoever
// knows only locks that are held or free.
func TestMovedRecords(t *testing.T) {
	t.Parallel()
	for says, move := range map[string]record.Move{
		"sealed: the lock has moved to gs://new/b":                                             {To: "gs://new/b"},
		"closed: the lock is to come here from s3://old/a, and leasehold move is not done yet": {From: "s3://old/a"},
	} {
		r := record.Record{Token: 7, Holder: "mover", TTL: time.Minute, WriteID: "m.1", Move: move, Ended: record.EndedByMove}
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.Decode(body)
		m, ok := errors.AsType[*record.MovedError](err)
		if !ok || m.Move != move || err.Error() != says || !errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) {
			t.Errorf("%s is read as %v", body, err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s is read as %+v", body, got)
		}
		// A version that does not know moves refuses the state.
		if text := string(body); strings.Contains(text, `"held"`) || strings.Contains(text, `"free"`) {
			t.Errorf("to other versions it is a lock: %s", text)
		}
		for _, broken := range []string{
			strings.NewReplacer(move.To+move.From, "").Replace(string(body)),
			strings.NewReplacer(`"moved_to":"`+move.To+`"`, `"moved_to":7`, `"moves_from":"`+move.From+`"`, `"moves_from":7`).Replace(string(body)),
			strings.NewReplacer("moved_to", "other", "moves_from", "other").Replace(string(body)),
			strings.NewReplacer("mover", "m", `"write_id":"m.1"`, `"write_id":""`).Replace(string(body)),
		} {
			if r, err := record.Decode([]byte(broken)); err == nil || errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) || r.Token != 0 {
				t.Errorf("%s is read as %+v, %v", broken, r, err)
			}
		}
	}
	// What moved once keeps nothing of that when the lock is written as one: the fields are known ones.
	body := `{"format":1,"token":7,"state":"free","holder":"a","ttl_ms":1000,"write_id":"a.1","moved_to":"x"}`
	if r, err := record.Decode([]byte(body)); err != nil || r.Move != (record.Move{}) || len(r.Unknown) != 1 {
		t.Errorf("a lock with a field of a move: %+v, %v", r, err)
	}
}
