package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencesql"
	"github.com/leasehold/leasehold/internal/fencecheck"
)

// (1) A has decided to write, and is paused. (2) B claims and writes. (3) A goes on,
// with a transaction that it had begun before. Without the check B's data is gone.
func TestFormerHolder(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s := newSQL(t, db, dialect)
		run(t, db, `CREATE TABLE doc (id INTEGER PRIMARY KEY, writer TEXT NOT NULL)`)
		for round := range 100 {
			run(t, db, `DELETE FROM doc`)
			run(t, db, `INSERT INTO doc VALUES (1, 'nobody')`)
			resource := fmt.Sprint("doc ", round)
			checked := round%10 > 0 // one in ten is the control
			a := fencecheck.Lease(t)
			paused := begin(t, db, sql.LevelDefault)

			b, tx := fence.Token(a.Token()+1), begin(t, db, sql.LevelDefault)
			check(t, s.CheckTx(t.Context(), tx, resource, b))
			run(t, tx, `UPDATE doc SET writer = 'B'`)
			check(t, tx.Commit())

			want := "A"
			if checked {
				want = "B"
				err := s.CheckTx(t.Context(), paused, resource, a)
				fencecheck.Refused(t, err, resource, a.Token(), b.Token())
				if err := a.Err(); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, fence.ErrFenced) {
					t.Errorf("A's lease says %v", err)
				}
				check(t, paused.Rollback())
			} else {
				run(t, paused, `UPDATE doc SET writer = 'A'`)
				check(t, paused.Commit())
			}
			if writer := get[string](t, db, `SELECT writer FROM doc`); writer != want {
				t.Fatalf("round %d, checked %t: the document is %s's, want %s's", round, checked, writer, want)
			}
		}
	})
}

// A token is remembered with what was written under it, or not at all.
func TestRollback(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
		s := newSQL(t, db, dialect)
		check(t, s.Check(t.Context(), "r", fence.Token(1)))
		tx := begin(t, db, sql.LevelDefault)
		check(t, s.CheckTx(t.Context(), tx, "r", fence.Token(3)))
		check(t, tx.Rollback())
		check(t, s.Check(t.Context(), "r", fence.Token(2)))
	})
}

// The other transaction waits while one that was checked is under way, the newer and
// the older alike, and also where the resource is checked for the first time.
func TestPostgresWaits(t *testing.T) {
	db := openPostgres(t)
	s := newSQL(t, db, fencesql.PostgreSQL)
	for _, tc := range []struct {
		level         sql.IsolationLevel
		before        leasehold.Token // checked and committed before, or 0
		first, second leasehold.Token
		after         func(error) bool // what the second is told
	}{
		{sql.LevelReadCommitted, 0, 1, 2, func(err error) bool { return err == nil }},
		{sql.LevelReadCommitted, 1, 1, 1, func(err error) bool { return err == nil }},
		{sql.LevelReadCommitted, 1, 2, 3, func(err error) bool { return err == nil }},
		{sql.LevelReadCommitted, 0, 2, 1, func(err error) bool { return errors.Is(err, fence.ErrFenced) }},
		{sql.LevelReadCommitted, 1, 3, 2, func(err error) bool { return errors.Is(err, fence.ErrFenced) }},
		{sql.LevelRepeatableRead, 1, 2, 3, isSerialization},
		{sql.LevelRepeatableRead, 1, 3, 2, isSerialization},
		{sql.LevelSerializable, 1, 2, 3, isSerialization},
		{sql.LevelSerializable, 0, 2, 1, isSerialization},
	} {
		name := fmt.Sprintf("%v, %v, then %v and %v", tc.level, tc.before, tc.first, tc.second)
		t.Run(name, func(t *testing.T) {
			if tc.before > 0 {
				check(t, s.Check(t.Context(), name, fence.Token(tc.before)))
			}
			first, second := begin(t, db, tc.level), begin(t, db, tc.level)
			check(t, s.CheckTx(t.Context(), first, name, fence.Token(tc.first)))
			said := make(chan error, 1)
			go func() { said <- s.CheckTx(t.Context(), second, name, fence.Token(tc.second)) }()
			for get[int](t, db, `SELECT count(*) FROM pg_locks WHERE NOT granted`) == 0 {
				select {
				case err := <-said:
					t.Fatalf("the second did not wait: %v", err)
				case <-time.After(time.Millisecond):
				}
			}
			check(t, first.Commit())
			err := <-said
			if !tc.after(err) {
				t.Errorf("the second is told %v", err)
			}
			if err != nil {
				check(t, second.Rollback())
				err = s.Check(t.Context(), name, fence.Token(tc.second)) // tried again
				if stale := tc.second < tc.first; stale != errors.Is(err, fence.ErrFenced) || !stale && err != nil {
					t.Errorf("tried again, it is told %v", err)
				}
				return
			}
			check(t, second.Commit())
		})
	}
}

// SQLite says that another transaction is in the way, once its patience is over.
func TestSQLiteIsBusy(t *testing.T) {
	db := openSQLite(t, 0)
	s := newSQL(t, db, fencesql.SQLite)
	first := begin(t, db, sql.LevelDefault)
	check(t, s.CheckTx(t.Context(), first, "r", fence.Token(1)))
	second := begin(t, db, sql.LevelDefault)
	if err := s.CheckTx(t.Context(), second, "r", fence.Token(2)); !isBusy(err) {
		t.Errorf("got %v, want SQLITE_BUSY", err)
	}
	check(t, first.Commit())
	check(t, s.CheckTx(t.Context(), second, "r", fence.Token(2)))

	// A read that would turn into a write has seen what is out of date by now.
	reader := begin(t, db, sql.LevelDefault)
	get[int](t, reader, `SELECT count(*) FROM leasehold_fence`)
	check(t, second.Commit())
	if err := s.CheckTx(t.Context(), reader, "r", fence.Token(3)); !isBusy(err) {
		t.Errorf("got %v, want SQLITE_BUSY", err)
	}
}

// Many holders at once write one document, in no order. In the order of their writes,
// the document never goes back to an older token; without the check it does.
func TestOrder(t *testing.T) {
	for _, checked := range []bool{true, false} {
		t.Run(fmt.Sprintf("checked=%t", checked), func(t *testing.T) {
			onEach(t, func(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
				order(t, db, dialect, sql.LevelDefault, checked)
			})
			t.Run("PostgreSQL serializable", func(t *testing.T) {
				order(t, openPostgres(t), fencesql.PostgreSQL, sql.LevelSerializable, checked)
			})
		})
	}
}

func order(t *testing.T, db *sql.DB, dialect fencesql.Dialect, level sql.IsolationLevel, checked bool) {
	t.Helper()
	s := newSQL(t, db, dialect)
	run(t, db, `CREATE TABLE doc (id INTEGER PRIMARY KEY, writes INTEGER NOT NULL)`)
	run(t, db, `INSERT INTO doc VALUES (1, 0)`)
	run(t, db, `CREATE TABLE history (n INTEGER PRIMARY KEY, token BIGINT NOT NULL)`)

	// write is one transaction. The row of the document orders those that write it.
	write := func(ctx context.Context, token fence.Token) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		if checked {
			if err := s.CheckTx(ctx, tx, "doc", token); err != nil {
				return err
			}
		}
		var n int
		if err := tx.QueryRowContext(ctx, `UPDATE doc SET writes = writes + 1 RETURNING writes`).Scan(&n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO history VALUES (%d, %d)`, n, token)); err != nil {
			return err
		}
		return tx.Commit()
	}

	const seed, holders, tokens = 1, 8, 400
	random := rand.New(rand.NewPCG(seed, 0))
	queue := make(chan fence.Token, tokens)
	for i := range int64(tokens) {
		queue <- fence.Token(1 + i/4 + random.Int64N(8))
	}
	close(queue)
	var mu sync.Mutex
	var written, refused, again int
	var wg sync.WaitGroup
	for range holders {
		wg.Go(func() {
			for token := range queue {
				err := write(t.Context(), token)
				for ; isSerialization(err) || isBusy(err); err = write(t.Context(), token) {
					mu.Lock()
					again++
					mu.Unlock()
				}
				mu.Lock()
				switch {
				case err == nil:
					written++
				case errors.Is(err, fence.ErrFenced):
					refused++
				default:
					t.Errorf("token %d: %v", token, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	back := backward(t, db, written)
	t.Logf("seed %d: %d written, %d refused, %d tried again, %d times back to an older token", seed, written, refused, again, back)
	if checked != (back == 0) {
		t.Errorf("checked %t: %d times back to an older token", checked, back)
	}
	if written < 20 || checked && refused < 20 {
		t.Errorf("%d written and %d refused, too few to say anything", written, refused)
	}
}

// backward counts how often the history goes back to an older token.
func backward(t *testing.T, db *sql.DB, written int) (back int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT token FROM history ORDER BY n`)
	check(t, err)
	defer rows.Close()
	var token, last, n int64
	for ; rows.Next(); n++ {
		check(t, rows.Scan(&token))
		if token < last {
			back++
		}
		last = token
	}
	check(t, rows.Err())
	if n != int64(written) {
		t.Errorf("%d writes were confirmed, and the history has %d", written, n)
	}
	return back
}
