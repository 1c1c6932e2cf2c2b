package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// server is the PostgreSQL of all tests of this process, each in a database of its own.
var (
	server *postgres
	start  = sync.OnceValue(func() (err error) {
		if server, err = startPostgres(); err == nil {
			cleanup = server.stop
		}
		return err
	})
)

// openPostgres opens an empty database of a real server. Where there is no PostgreSQL
// the test is skipped, but in CI it fails: there it is there to be tested.
func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := openPostgresAt(t)
	return db
}

// openPostgresAt also tells the URL, for other processes.
func openPostgresAt(t *testing.T) (*sql.DB, string) {
	t.Helper()
	if err := start(); errors.Is(err, errNoPostgres) && os.Getenv("CI") != "true" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test%d", server.databases.Add(1))
	admin := server.open(t, "postgres")
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return server.open(t, name), server.url(name)
}

var errNoPostgres = errors.New("no PostgreSQL here: there is no postgres on PATH or in /usr/lib/postgresql/*/bin (Debian: apt-get install postgresql)")

// bin is the directory with initdb and postgres.
func bin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is right
	if len(found) == 0 {
		return "", errNoPostgres
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

type postgres struct {
	dir  string
	cmd  *exec.Cmd
	said bytes.Buffer
	done chan struct{} // closed when it has ended

	databases atomic.Int64
}

// startPostgres starts a server that listens on a socket in a directory of its own.
func startPostgres() (_ *postgres, err error) {
	bin, err := bin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg") // a socket's path must be short
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, done: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	as, err := account(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata", data, "--username", "test", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C") //nolint:noctx // it ends by itself
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if said, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, said)
	}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off") //nolint:noctx // stop ends it
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.said, &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGINT}
	if err := p.start(); err != nil {
		return nil, err
	}
	if err := p.ready(); err != nil {
		p.stop()
		return nil, fmt.Errorf("start postgres: %w\n%s", err, &p.said)
	}
	return p, nil
}

// account is the one to run as: postgres refuses to run as root. The directory is given
// to it.
func account(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // no other account than ours
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		who, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("find an account for postgres, which refuses to run as root: %w", err)
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

// start starts the server from a thread that stays until it has ended: the kernel ends
// it, with Pdeathsig, when the thread is gone that started it.
func (p *postgres) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // what it said says why
			close(p.done)
		}
	}()
	return <-started
}

// ready waits until the server answers.
func (p *postgres) ready() error {
	db, err := sql.Open("pgx", p.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it has ended")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the server and removes what it has written.
func (p *postgres) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // an error means that it is gone already
	<-p.done
	_ = os.RemoveAll(p.dir)
}

func (p *postgres) url(database string) string {
	return "host=" + p.dir + " user=test dbname=" + database
}

func (p *postgres) open(t *testing.T, database string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", p.url(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
