// Package fencesql fences what lies in a SQL database: a transaction with a former holder's token
// is refused, in the same statement or transaction that would have written.
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

// The dialects that [New] knows: PostgreSQL from 9.5 on, SQLite from 3.24 on.
const (
	PostgreSQL Dialect = "PostgreSQL"
	SQLite     Dialect = "SQLite"
)

// Options are the options of [New]. The zero value, like nil, gives the defaults.
type Options struct {
	// Table is the name of the guard table, as in "fence" or "schema.fence". Default
	// "leasehold_fence".
	Table string
}

// A Fence guards what lies in a SQL database, by tokens in the same database: in a guard
// table with a row for each resource ([Fence.CheckTx], [Fence.Check]), or in a column of
// the rows themselves ([Fence.Update]). It goes through database/sql alone, with the
// driver that the caller has opened, and is safe for concurrent use.
//
// Errors of the database are returned as they are, wrapped: SQLite's "database is
// locked", PostgreSQL's serialization failures (SQLSTATE 40001) and deadlocks. They
// mean that the transaction has to be rolled back and may be tried again.
type Fence struct {
	db      *sql.DB
	dialect Dialect
	table   string // quoted
}

// New fences by a guard table in db. It sends nothing; see [Fence.Create].
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

// Create makes the guard table if it is not there. Any number of processes may do so
// at once. No row of it may ever be deleted, since the token goes with it.
func (s *Fence) Create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+s.table+
		` ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL)`)
	if err == nil {
		return nil
	}
	// Of two that create it at once, PostgreSQL tells one that it exists, despite the
	// clause; and a user of the table need not be allowed to create any.
	if _, probe := s.db.ExecContext(ctx, `SELECT "resource", "token" FROM `+s.table+` WHERE 1 = 0`); probe != nil {
		return fmt.Errorf("create the guard table %s: %w", s.table, err)
	}
	return nil
}

// Check makes it a [fence.Checker] for resources outside of this database. For data in it a
// check on its own is not enough: use CheckTx.
func (s *Fence) Check(ctx context.Context, resource string, h fence.Holder) error {
	return s.check(ctx, s.db, resource, h)
}

// CheckTx admits the token of h to the resource within tx, or says why not, as a
// [fence.Checker] does. The check and the caller's later statements in tx are one: the row of
// the resource in the guard table stays locked until tx ends, so the transaction of a newer
// holder waits for this one and comes after it, and that of an older one, whenever it began,
// comes to the check afterwards and is refused. The token is remembered if tx commits.
// Transactions on one resource so run one after the other.
//
// It should be the first statement of tx: an earlier read of tx may be out of date,
// and in SQLite the check would have to turn the read into a write, which fails when
// another has written in between. After an error tx must be rolled back.
//
// PostgreSQL: READ COMMITTED, its default, is enough. Under REPEATABLE READ and
// SERIALIZABLE a transaction that waited for another fails with SQLSTATE 40001, be it
// stale or not. Tried again, it is admitted or refused.
func (s *Fence) CheckTx(ctx context.Context, tx *sql.Tx, resource string, h fence.Holder) error {
	return s.check(ctx, tx, resource, h)
}

// Queryer is what *sql.DB, *sql.Conn and *sql.Tx have in common, as far as it is used.
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

// A Row names a row that has the token of its last writer in a column of its own.
type Row struct {
	Table string         // its name, as in "jobs" or "schema.jobs"
	Key   map[string]any // the columns that make it out, at least one, and their values
	Token string         // the column of the token, a BIGINT NOT NULL; default "token"
}

func (r Row) String() string {
	var key []string
	for _, column := range slices.Sorted(maps.Keys(r.Key)) {
		key = append(key, fmt.Sprintf("%s=%v", column, r.Key[column]))
	}
	return r.Table + "[" + strings.Join(key, " ") + "]"
}

// Update sets columns of a row and its token to that of h, if the row has no larger
// one: UPDATE … SET …, token = ? WHERE key = ? AND token <= ?. One statement needs no
// transaction around it. on is the database or a transaction of the caller's.
//
// It returns a [*FencedError] if the row has a larger token, and an error that matches
// [sql.ErrNoRows] if there is no such row. A deleted row forgets its token, so rows are
// to be marked as deleted, and a former holder may well insert one anew: where rows
// come and go, guard them by CheckTx.
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
		err = sql.ErrNoRows // tokens only grow: it has come since
	}
	if err != nil {
		return fmt.Errorf("update %v with token %v: %w", row, h.Token(), err)
	}
	return fence.Refuse(h, row.String(), newest)
}

// columns gives "column = ?" for each, in a fixed order, and the values.
func columns(of map[string]any) (terms []string, values []any) {
	for _, column := range slices.Sorted(maps.Keys(of)) {
		terms = append(terms, quote(column)+" = ?")
		values = append(values, of[column])
	}
	return terms, values
}

// exec reports whether the statement changed anything.
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

// bind writes the placeholders as the dialect does. A "?" within a quoted name is none.
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

// quoteTable quotes a name that may have a schema before it.
func quoteTable(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = quote(part)
	}
	return strings.Join(parts, ".")
}
