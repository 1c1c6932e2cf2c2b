package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresServer has PostgreSQL's defaults, with fsync, but for as many connections as all
// candidates have.
var postgresServer = &daemon{
	noRoot: true,
	command: func(ctx context.Context, at site) ([]string, error) {
		initdb, err := program(ctx, "initdb", "/usr/lib/postgresql/*/bin/initdb", "postgresql")
		if err != nil {
			return nil, err
		}
		if initdb, err = filepath.EvalSymlinks(initdb); err != nil { // postgres is beside it
			return nil, err
		}
		data := filepath.Join(at.dir, "data")
		if err = runAs(at, initdb, "--pgdata", data, "--username", "bench", "--auth", "trust", "--encoding", "UTF8", "--locale", "C"); err != nil {
			return nil, err
		}
		return []string{
			filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-p", at.port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=500",
		}, nil
	},
	answers: func(ctx context.Context, addr string) error {
		c, err := pgx.Connect(ctx, postgresURL(addr))
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, `CREATE TABLE IF NOT EXISTS leases (
			name text PRIMARY KEY, token bigint NOT NULL, expires timestamptz NOT NULL)`)
		return errors.Join(err, c.Close(ctx))
	},
}

func postgresURL(addr string) string { return "postgres://bench@" + addr + "/postgres?sslmode=disable" }

// openAdvisory gives advisory locks of sessions. The server releases them when it notices
// that the connection has ended, so there is no TTL. They are in its memory alone.
func openAdvisory(ctx context.Context, b *bench, _ *place, _ time.Duration) (candidate, error) {
	addr, err := postgresServer.addr(b.host)
	if err != nil {
		return nil, err
	}
	c, err := pgx.Connect(ctx, postgresURL(addr))
	return &advisory{conn: c}, err
}

// An advisory candidate is one connection, which is for one statement at a time.
type advisory struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

func (a *advisory) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name)
	return a.unlock(name), err
}

func (a *advisory) try(ctx context.Context, name string) (func(context.Context) error, error) {
	acquired, err := a.ask(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, name)
	if err == nil && !acquired {
		return nil, errHeld
	}
	return a.unlock(name), err
}

func (a *advisory) unlock(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		held, err := a.ask(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, name)
		if err == nil && !held {
			err = fmt.Errorf("the advisory lock %q was not held any more", name)
		}
		return err
	}
}

func (a *advisory) ask(ctx context.Context, query, name string) (yes bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return yes, a.conn.QueryRow(ctx, query, name).Scan(&yes)
}

func (a *advisory) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	a.mu.Lock() // a statement that was given up is on its way out
	defer a.mu.Unlock()
	_ = a.conn.Close(ctx)
}

// openRow gives locks that are one row each, which expires by the server's clock. Its users
// look again after a while: a row tells nobody.
func openRow(ctx context.Context, b *bench, _ *place, ttl time.Duration) (candidate, error) {
	addr, err := postgresServer.addr(b.host)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(postgresURL(addr))
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1 // one for each candidate; its renewals take turns with the rest
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	r := &leaseRows{pool: pool, ttl: ttl, there: map[string]bool{}}
	r.poller = newPoller(ttl, r.take)
	return r, nil
}

type leaseRows struct {
	*poller
	pool  *pgxpool.Pool
	ttl   time.Duration
	there map[string]bool // the rows that this candidate knows of
}

func (r *leaseRows) take(ctx context.Context, name string) (grant, error) {
	if !r.there[name] {
		if _, err := r.pool.Exec(ctx, `INSERT INTO leases VALUES ($1, 0, '-infinity') ON CONFLICT DO NOTHING`, name); err != nil {
			return nil, err
		}
		r.there[name] = true
	}
	row := &leaseRow{leaseRows: r, name: name}
	err := r.pool.QueryRow(ctx, `UPDATE leases SET token = token + 1, expires = now() + $2::interval
		WHERE name = $1 AND expires < now() RETURNING token`, name, r.ttl).Scan(&row.token)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errHeld
	}
	return row, err
}

func (r *leaseRows) close() {
	r.poller.close()
	r.pool.Close()
}

type leaseRow struct {
	*leaseRows
	name  string
	token int64
}

func (l *leaseRow) renew(ctx context.Context) error { return l.until(ctx, l.ttl) }

// release keeps the row, and its token.
func (l *leaseRow) release(ctx context.Context) error { return l.until(ctx, -l.ttl) }

func (l *leaseRow) until(ctx context.Context, left time.Duration) error {
	done, err := l.pool.Exec(ctx, `UPDATE leases SET expires = now() + $3::interval
		WHERE name = $1 AND token = $2 AND expires > now()`, l.name, l.token, left)
	if err == nil && done.RowsAffected() == 0 {
		err = fmt.Errorf("the row %q is not held any more", l.name)
	}
	return err
}
