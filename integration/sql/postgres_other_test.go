//go:build !linux

package sql_test

import (
	"database/sql"
	"testing"
)

func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := openPostgresAt(t)
	return db
}

func openPostgresAt(t *testing.T) (*sql.DB, string) {
	t.Helper()
	t.Skip("PostgreSQL is started on Linux only")
	return nil, ""
}
