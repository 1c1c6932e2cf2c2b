// Package fencesql fences data in a SQL database. It rejects transactions with a former
// holder's token in the same statement or transaction that would have written.
package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
)

// A Dialect is the SQL of a database.
type Dialect string

// The dialects supported by [New]: PostgreSQL 9.5 or later, and SQLite 3.24 or later.
const (
	PostgreSQL Dialect = "PostgreSQL"
	SQLite     Dialect = "SQLite"
)

// Options are the options of [New]. The zero value and nil mean the defaults.
type Options struct {
	// Table is the name of the guard table, such as "fence" or "schema.fence". Default
	// "leasehold_fence".
	Table string
}

// A Fence protects data in a SQL database by tokens in the same database: in a guard table with
// one row per resource ([Fence.CheckTx], [Fence.Check]), or in a column of the data's own rows
// ([Fence.Update]). It uses only database/sql, with the driver you have opened. It is safe for
// concurrent use.
//
// A Fence returns errors of the database wrapped, such as "database is locked" in SQLite and
// serialization failures (SQLSTATE 40001) and deadlocks in PostgreSQL. After these, roll back
// the transaction; you may retry it.
type Fence struct {
	db      *sql.DB
	dialect Dialect
	table   string // quoted
}

// New returns a Fence with a guard table in db. It sends nothing; see [Fence.Create].
func New(db *sql.DB, dialect Dialect, opts *Options) (*Fence, error) {
	if db == nil {
		return nil, errors.New("the database of a fence is nil")
	}
	if dialect != PostgreSQL && dialect != SQLite {
		return nil, fmt.Errorf("there is no dialect %q: use fencesql.PostgreSQL or fencesql.SQLite", dialect)
	}
	s := &Fence{db: db, dialect: dialect, table: "leasehold_fence"}
	if opts != nil && opts.Table != "" {
		s.table = opts.Table
	}
	s.table = quoteTable(s.table)
	return s, nil
}

// Create creates the guard table unless it exists. Several processes may call it at once. Never
// delete a row of the table, because its token is lost with it.
func (s *Fence) Create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+s.table+
		` ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL)`)
	if err == nil {
		return nil
	}
	// If two processes create the table at once, PostgreSQL tells one that it exists, despite
	// the clause. And a user of the table may not be allowed to create tables.
	if _, probe := s.db.ExecContext(ctx, `SELECT "resource", "token" FROM `+s.table+` WHERE 1 = 0`); probe != nil {
		return fmt.Errorf("create the guard table %s: %w", s.table, err)
	}
	return nil
}

// Check implements [fence.Checker] for resources outside of this database. For data in this
// database it is not enough: use CheckTx.
func (s *Fence) Check(ctx context.Context, resource string, h fence.Holder) error {
	return s.check(ctx, s.db, resource, h)
}

// CheckTx admits the token of h to the resource within tx, or returns an error, as a
// [fence.Checker] does. The check and your later statements in tx are atomic, because the guard
// table's row for the resource stays locked until tx ends. A newer holder's transaction waits
// for this one. An older holder's transaction, whenever it began, reaches the check later and
// is rejected. The token is remembered if tx commits. So the transactions on one resource run
// one after the other.
//
// Call it first in tx: an earlier read of tx may be outdated, and in SQLite the check would
// have to upgrade the read to a write, which fails if another transaction has written in
// between. After an error, roll back tx.
//
// In PostgreSQL, READ COMMITTED, the default, is enough. Under REPEATABLE READ and
// SERIALIZABLE, a transaction that waited for another fails with SQLSTATE 40001, whether or not
// its token is stale. When retried, it is admitted or rejected.
func (s *Fence) CheckTx(ctx context.Context, tx *sql.Tx, resource string, h fence.Holder) error {
	return s.check(ctx, tx, resource, h)
}

// Queryer is the part of *sql.DB, *sql.Conn and *sql.Tx needed by a Fence.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Fence) check(ctx context.Context, on Queryer, resource string, h fence.Holder) error {
	if err := fence.Admit(h); err != nil {
		return err
	}
	changed, err := s.exec(ctx, on,
		`INSERT INTO `+s.table+` AS "guard" ("resource", "token") VALUES (?, ?)`+
			` ON CONFLICT ("resource") DO UPDATE SET "token" = excluded."token"`+
			` WHERE "guard"."token" <= excluded."token"`, resource, int64(h.Token()))
	if err != nil {
		return fmt.Errorf("check token %v of %s in %s: %w", h.Token(), resource, s.table, err)
	}
	if changed {
		return nil
	}
	newest, err := s.token(ctx, on, `SELECT "token" FROM `+s.table+` WHERE "resource" = ?`, resource)
	if err != nil {
		return fmt.Errorf("token %v of %s was refused, and %s does not say by which: %w", h.Token(), resource, s.table, err)
	}
	return fence.Refuse(h, resource, newest)
}

// A Row names a row that has the token of its last writer in a column.
type Row struct {
	Table string         // such as "jobs" or "schema.jobs"
	Key   map[string]any // columns that identify the row, at least one, and their values
	Token string         // column of the token, a BIGINT NOT NULL; default "token"
}

func (r Row) String() string {
	var key []string
	for _, column := range slices.Sorted(maps.Keys(r.Key)) {
		key = append(key, fmt.Sprintf("%s=%v", column, r.Key[column]))
	}
	return r.Table + "[" + strings.Join(key, " ") + "]"
}

// Update sets columns of a row and its token to that of h, unless the row has a larger one:
// UPDATE … SET …, token = ? WHERE key = ? AND token <= ?. This is one statement and needs no
// transaction. on is the database or your transaction.
//
// Update returns a [*fence.FencedError] if the row has a larger token, and an error that
// matches [sql.ErrNoRows] if there is no such row. A deleted row loses its token, and a former
// holder may insert it again. So mark rows as deleted instead, or use CheckTx if rows are
// created and deleted.
func (s *Fence) Update(ctx context.Context, on Queryer, row Row, set map[string]any, h fence.Holder) error {
	if err := fence.Admit(h); err != nil {
		return err
	}
	if row.Table == "" || len(row.Key) == 0 {
		return fmt.Errorf("the row %v has no table or no key", row)
	}
	if row.Token == "" {
		row.Token = "token"
	}
	token := quote(row.Token)
	assign, args := columns(set)
	where, keys := columns(row.Key)
	args = append(args, int64(h.Token()))
	args = append(append(args, keys...), int64(h.Token()))

	changed, err := s.exec(ctx, on, `UPDATE `+quoteTable(row.Table)+
		` SET `+strings.Join(append(assign, token+" = ?"), ", ")+
		` WHERE `+strings.Join(append(slices.Clone(where), token+" <= ?"), " AND "), args...)
	if err != nil {
		return fmt.Errorf("update %v with token %v: %w", row, h.Token(), err)
	}
	if changed {
		return nil
	}
	newest, err := s.token(ctx, on, `SELECT `+token+` FROM `+quoteTable(row.Table)+` WHERE `+strings.Join(where, " AND "), keys...)
	if err == nil && newest <= h.Token() {
		err = sql.ErrNoRows // tokens only grow: the row was inserted since
	}
	if err != nil {
		return fmt.Errorf("update %v with token %v: %w", row, h.Token(), err)
	}
	return fence.Refuse(h, row.String(), newest)
}

// columns returns "column = ?" for each column, in a fixed order, and the values.
func columns(of map[string]any) (terms []string, values []any) {
	for _, column := range slices.Sorted(maps.Keys(of)) {
		terms = append(terms, quote(column)+" = ?")
		values = append(values, of[column])
	}
	return terms, values
}

// exec reports whether the statement changed any rows.
func (s *Fence) exec(ctx context.Context, on Queryer, query string, args ...any) (bool, error) {
	result, err := on.ExecContext(ctx, s.dialect.bind(query), args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (s *Fence) token(ctx context.Context, on Queryer, query string, args ...any) (token leasehold.Token, err error) {
	err = on.QueryRowContext(ctx, s.dialect.bind(query), args...).Scan((*int64)(&token))
	return token, err
}

// bind rewrites the placeholders for the dialect, except in quoted names.
func (d Dialect) bind(query string) string {
	if d != PostgreSQL {
		return query
	}
	var b strings.Builder
	n, quoted := 0, false
	for _, r := range query {
		switch {
		case r == '?' && !quoted:
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		case r == '"':
			quoted = !quoted
		}
		b.WriteRune(r)
	}
	return b.String()
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteTable quotes a name that may have a schema.
func quoteTable(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = quote(part)
	}
	return strings.Join(parts, ".")
}
