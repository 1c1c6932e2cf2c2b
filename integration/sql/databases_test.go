package sql_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/leasehold/leasehold/fence/fencesql"
	"modernc.org/sqlite"
)

// cleanup ends what all tests share.
var cleanup = func() {}

// TestMain lets more tests run at a time than there are cores: some wait for leases to
// end, most of the time.
func TestMain(m *testing.M) {
	becomeHolder()
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	code := m.Run()
	cleanup()
	os.Exit(code)
}

// onEach runs a test on an empty database of each kind.
func onEach(t *testing.T, test func(t *testing.T, db *sql.DB, dialect fencesql.Dialect)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) { test(t, openPostgres(t), fencesql.PostgreSQL) })
	t.Run("SQLite", func(t *testing.T) { test(t, openSQLite(t, 60_000), fencesql.SQLite) })
}

// openSQLite opens a database in which a statement waits for others for so many ms.
func openSQLite(t *testing.T, patience int) *sql.DB {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "test.db"), patience)
}

func openFile(t *testing.T, path string, patience int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)", path, patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	// One connection alone turns the journal of a new file, which is not waited for: of several that
	// try at once all but one are told that the file is busy, whatever their patience.
	if err = db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// isBusy reports an error of SQLite by which another transaction was in the way.
func isBusy(err error) bool {
	const busy = 5
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == busy
}

// isSerialization reports an error of PostgreSQL by which a transaction could not be
// put in order with others.
func isSerialization(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "40001"
}

func newSQL(t *testing.T, db *sql.DB, dialect fencesql.Dialect) *fencesql.Fence {
	t.Helper()
	s, err := fencesql.New(db, dialect, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // most have ended by then
	return tx
}

// queryer is a database or a transaction.
type queryer = fencesql.Queryer

func run(t *testing.T, on queryer, query string) {
	t.Helper()
	if _, err := on.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// get reads one value.
func get[T any](t *testing.T, on queryer, query string) (value T) {
	t.Helper()
	if err := on.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
