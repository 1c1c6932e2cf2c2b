package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencesql"
	"github.com/leasehold/leasehold/internal/fencecheck"
)

var _ fence.Checker = (*fencesql.Fence)(nil)

func TestCheck(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		schema := map[fencesql.Dialect]string{fencesql.PostgreSQL: "public", fencesql.SQLite: "main"}[dialect]
		for _, table := range []string{"", schema + `.an "odd"? name`} {
			s, err := fencesql.New(db, dialect, &fencesql.Options{Table: table})
			check(t, err)
			check(t, s.Create(t.Context()))
			check(t, s.Create(t.Context())) // again: it keeps what is there
			for _, step := range []struct {
				resource      string
				token, newest leasehold.Token // newest: by which it is refused, or 0
			}{
				{"a", 5, 0},
				{"a", 5, 0},
				{"a", 4, 5},
				{"b'\"?$1", 4, 0},
				{"a", 1 << 62, 0},
				{"a", 6, 1 << 62},
				{"b'\"?$1", 4, 0},
				{"b'\"?$1", 3, 4},
			} {
				err := s.Check(t.Context(), step.resource, fence.Token(step.token))
				if step.newest == 0 {
					check(t, err)
				} else {
					fencecheck.Refused(t, err, step.resource, step.token, step.newest)
				}
			}
		}
		if n := get[int](t, db, `SELECT count(*) FROM `+schema+`."an ""odd""? name"`); n != 2 {
			t.Errorf("the table that was named has %d rows, want 2", n)
		}
	})
}

// The database remembers the admitted token, not this process.
func TestCheckIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path, 60_000)
	check(t, newSQL(t, db, fencesql.SQLite).Check(t.Context(), "r", fence.Token(2)))
	check(t, db.Close())
	s := newSQL(t, openFile(t, path, 60_000), fencesql.SQLite)
	fencecheck.Refused(t, s.Check(t.Context(), "r", fence.Token(1)), "r", 1, 2)
}

// PostgreSQL tells one of two that create a table at once that it exists.
func TestCreateAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s, err := fencesql.New(db, dialect, nil)
		check(t, err)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if err := s.Create(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// A holder that cannot write is told so before the database is asked.
func TestHolderThatCannotWrite(t *testing.T) {
	db := openSQLite(t, 0)
	s := newSQL(t, db, fencesql.SQLite)
	tx := begin(t, db, sql.LevelDefault)
	check(t, tx.Rollback())
	check(t, db.Close()) // everything that reaches it fails with another error
	released := fencecheck.Lease(t)
	check(t, released.Release(t.Context()))
	row := fencesql.Row{Table: "t", Key: map[string]any{"id": 1}}
	for h, want := range map[fence.Holder]error{
		nil:            fence.ErrNoToken,
		fence.Token(0): fence.ErrNoToken,
		released:       leasehold.ErrReleased,
	} {
		for name, err := range map[string]error{
			"Check":   s.Check(t.Context(), "r", h),
			"CheckTx": s.CheckTx(t.Context(), tx, "r", h),
			"Update":  s.Update(t.Context(), db, row, nil, h),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s by %v: %v, want %v", name, h, err, want)
			}
		}
	}
}

// An error of the database means neither admitted nor fenced, and is not hidden.
func TestErrorsOfTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s, err := fencesql.New(db, dialect, nil)
		check(t, err)
		if err := s.Check(t.Context(), "r", fence.Token(1)); err == nil || errors.Is(err, fence.ErrFenced) {
			t.Errorf("without a table: %v", err)
		}
		check(t, s.Create(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Check(ctx, "r", fence.Token(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestUpdate(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s := newSQL(t, db, dialect)
		run(t, db, `CREATE TABLE jobs (name TEXT NOT NULL, part INTEGER NOT NULL, state TEXT, held BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (name, part))`)
		run(t, db, `INSERT INTO jobs (name, part, state) VALUES ('a', 1, 'new'), ('a', 2, 'new')`)
		row := func(part int) fencesql.Row {
			return fencesql.Row{Table: "jobs", Key: map[string]any{"name": "a", "part": part}, Token: "held"}
		}
		set := func(part int, state string, h fence.Holder) error {
			return s.Update(t.Context(), db, row(part), map[string]any{"state": state}, h)
		}
		check(t, set(1, "five", fence.Token(5)))
		check(t, set(1, "five again", fence.Token(5)))
		fencecheck.Refused(t, set(1, "four", fence.Token(4)), "jobs[name=a part=1]", 4, 5)
		check(t, s.Update(t.Context(), db, row(1), nil, fence.Token(6))) // a claim
		fencecheck.Refused(t, set(1, "five", fence.Token(5)), "jobs[name=a part=1]", 5, 6)
		if state, token := get[string](t, db, `SELECT state FROM jobs WHERE part = 1`), get[int64](t, db, `SELECT held FROM jobs WHERE part = 1`); state != "five again" || token != 6 {
			t.Errorf("the row has %q and token %d", state, token)
		}
		if state, token := get[string](t, db, `SELECT state FROM jobs WHERE part = 2`), get[int64](t, db, `SELECT held FROM jobs WHERE part = 2`); state != "new" || token != 0 {
			t.Errorf("the row beside it has %q and token %d", state, token)
		}
		if err := set(3, "five", fence.Token(5)); !errors.Is(err, sql.ErrNoRows) || errors.Is(err, fence.ErrFenced) {
			t.Errorf("a row that is not there: %v", err)
		}
		for _, bad := range []fencesql.Row{{Table: "jobs"}, {Key: map[string]any{"part": 1}}, {Table: "nowhere", Key: map[string]any{"part": 1}}} {
			if err := s.Update(t.Context(), db, bad, nil, fence.Token(7)); err == nil || errors.Is(err, sql.ErrNoRows) {
				t.Errorf("the row %v: %v", bad, err)
			}
		}

		lease := fencecheck.Lease(t)
		check(t, set(2, "mine", lease))
		newest := lease.Token() + 1
		check(t, set(2, "another's", fence.Token(newest)))
		fencecheck.Refused(t, set(2, "mine", lease), "jobs[name=a part=2]", lease.Token(), newest)
		if err := lease.Err(); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, fence.ErrFenced) {
			t.Errorf("the lease says %v", err)
		}
	})
}

// Create says when the table was not made, and is none to use. No test noticed when it did
// not.
func TestCreateFails(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s, err := fencesql.New(db, dialect, nil)
		check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Create(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

// A guard table that neither takes a token nor has a larger one refuses nothing by a token: it
// is in trouble. No test noticed when it said that a holder with token 0 has claimed it.
func TestTableThatSaysNothing(t *testing.T) {
	db := openSQLite(t, 0)
	s := newSQL(t, db, fencesql.SQLite)
	run(t, db, `CREATE TRIGGER none BEFORE INSERT ON leasehold_fence BEGIN SELECT RAISE(IGNORE); END`)
	if err := s.Check(t.Context(), "r", fence.Token(1)); !errors.Is(err, sql.ErrNoRows) || errors.Is(err, fence.ErrFenced) || !strings.Contains(err.Error(), "does not say by which") {
		t.Errorf("%v, want that the table does not say by which", err)
	}
}

// between is a database to which something happens after each change and before it is read.
type between struct {
	*sql.DB
	happens func() error
}

func (b between) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := b.DB.ExecContext(ctx, query, args...)
	return result, errors.Join(err, b.happens())
}

// A row needs a table and a key, and one column is enough; its token is in the column "token"
// if it is not said in which. No test noticed when that was otherwise.
func TestRows(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s := newSQL(t, db, dialect)
		run(t, db, `CREATE TABLE things (id INTEGER NOT NULL PRIMARY KEY, state TEXT, token BIGINT NOT NULL DEFAULT 0)`)
		run(t, db, `INSERT INTO things (id, state) VALUES (1, 'new')`)
		row := fencesql.Row{Table: "things", Key: map[string]any{"id": 1}}
		check(t, s.Update(t.Context(), db, row, map[string]any{"state": "mine"}, fence.Token(3)))
		if token := get[int64](t, db, `SELECT token FROM things`); token != 3 {
			t.Errorf("the row has the token %d, want 3", token)
		}
		fencecheck.Refused(t, s.Update(t.Context(), db, row, nil, fence.Token(2)), "things[id=1]", 2, 3)
		for _, bad := range []fencesql.Row{{}, {Table: "things"}, {Key: map[string]any{"id": 1}}} {
			if err := s.Update(t.Context(), db, bad, nil, fence.Token(4)); err == nil || !strings.Contains(err.Error(), "has no table or no key") {
				t.Errorf("the row %v: %v", bad, err)
			}
		}

		// A row that comes after the update has found none was not updated, and refuses nothing.
		row.Key["id"] = 2
		late := between{db, func() error { run(t, db, `INSERT INTO things (id, state, token) VALUES (2, 'new', 3)`); return nil }}
		if err := s.Update(t.Context(), late, row, nil, fence.Token(3)); !errors.Is(err, sql.ErrNoRows) || errors.Is(err, fence.ErrFenced) {
			t.Errorf("a row that has come since: %v", err)
		}
		// Nor does one that was not asked.
		failure := errors.New("the connection was reset")
		if err := s.Update(t.Context(), between{db, func() error { return failure }}, row, nil, fence.Token(2)); !errors.Is(err, failure) || errors.Is(err, fence.ErrFenced) {
			t.Errorf("an update that has failed: %v", err)
		}
		// A row that cannot be read refuses nothing either.
		row.Key["id"] = 3
		broken := between{db, func() error { run(t, db, `DROP TABLE things`); return nil }}
		if err := s.Update(t.Context(), broken, row, nil, fence.Token(3)); err == nil || errors.Is(err, fence.ErrFenced) || errors.Is(err, sql.ErrNoRows) {
			t.Errorf("a table that has gone since: %v", err)
		}
	})
}
