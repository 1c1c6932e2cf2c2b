//go:build unix

package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencesql"
	"github.com/leasehold/leasehold/internal/fencetest"
	"github.com/leasehold/leasehold/internal/servers"
)

var long = flag.Bool("long", false, "stop a holder 100 times for each database and place of the lock, instead of once")

// becomeHolder makes this process a holder of fencetest, if it is to be one.
func becomeHolder() {
	fencetest.Main(map[string]fencetest.Opener{
		"postgresql": opener("pgx", fencesql.PostgreSQL),
		"sqlite":     opener("sqlite", fencesql.SQLite),
	})
}

func opener(driver string, dialect fencesql.Dialect) fencetest.Opener {
	return func(_ context.Context, at string, seed uint64) (fencetest.Resource, error) {
		db, err := sql.Open(driver, at)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		s, err := fencesql.New(db, dialect, nil)
		return &cell{db: db, guard: s, seed: seed, random: rand.New(rand.NewPCG(seed, 0))}, err
	}
}

// A cell is one value in a table, beside the guard table.
type cell struct {
	db     *sql.DB
	guard  *fencesql.Fence
	h      fence.Holder
	seed   uint64
	random *rand.Rand
}

func (c *cell) Claim(ctx context.Context, h fence.Holder) error {
	c.h = h
	return c.guard.Check(ctx, "cell", h)
}

// Write checks the token and writes in one transaction, and dawdles in between. Of some
// the answer is lost.
func (c *cell) Write(ctx context.Context, value string) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it is over, if it was committed
	if err = c.guard.CheckTx(ctx, tx, "cell", c.h); err != nil {
		return err
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(3 * time.Millisecond))))
	if _, err = tx.ExecContext(ctx, `UPDATE cell SET value = '`+value+`'`); err != nil {
		return err
	}
	if err = tx.Commit(); err == nil && c.seed != 0 && c.random.IntN(10) == 0 {
		err = errors.New("the answer was lost")
	}
	return err
}

func (c *cell) Read(ctx context.Context) (value string, err error) {
	return value, c.db.QueryRowContext(ctx, `SELECT value FROM cell`).Scan(&value)
}

// TestFormerHolderWakesUp is the same as for objects, logs and services: a holder is
// stopped while it writes, and goes on when the next one has written. If it was stopped
// within a transaction, the next holder's claim waits for that one's end: PostgreSQL ends
// it by idle_in_transaction_session_timeout, and for SQLite the former holder has to go on.
func TestFormerHolderWakesUp(t *testing.T) {
	t.Parallel()
	rounds := 1
	if *long {
		rounds = 100
	}
	for kind, open := range map[string]func(t *testing.T) string{"postgresql": postgresDSN, "sqlite": sqliteDSN} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, place := range places(t) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for round := range rounds {
						t.Run(fmt.Sprint(round), func(t *testing.T) {
							t.Parallel()
							q := fencetest.Sequence{
								LockURL: strings.Replace(place.url, "lock", fmt.Sprintf("lock-%s-%d/x", kind, round), 1),
								At:      open(t), Env: place.env, Kind: kind, Blocks: kind == "sqlite" || name == "file",
							}
							if q.Play(t) == "" {
								t.Error("what the second holder wrote is gone, and the first was never refused")
							}
						})
					}
				})
			}
		})
	}
}

// A place is where a lock lies.
type place struct {
	url string
	env []string
}

func places(t *testing.T) map[string]place {
	t.Helper()
	all := map[string]place{"file": {"file://" + t.TempDir() + "/lock", nil}}
	for _, name := range []string{"minio", "versitygw"} {
		if servers.Skipped(name) {
			continue
		}
		s := servers.Start(t, name)
		head, query, _ := strings.Cut(s.URL(s.Bucket(t)), "?")
		all[name] = place{head + "/lock?" + query, s.Env()}
	}
	return all
}

const makeCell = `CREATE TABLE cell (value TEXT NOT NULL)`

func sqliteDSN(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.db")
	db := openFile(t, path, 60_000)
	prepare(t, db, fencesql.SQLite)
	return "file:" + path + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_txlock=immediate"
}

func postgresDSN(t *testing.T) string {
	t.Helper()
	db, dsn := openPostgresAt(t)
	prepare(t, db, fencesql.PostgreSQL)
	return dsn + " options='-c idle_in_transaction_session_timeout=500'"
}

func prepare(t *testing.T, db *sql.DB, dialect fencesql.Dialect) {
	t.Helper()
	newSQL(t, db, dialect)
	run(t, db, makeCell)
	run(t, db, `INSERT INTO cell VALUES ('')`)
	check(t, db.Close())
}
