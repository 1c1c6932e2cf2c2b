package fencesql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencesql"
)

// A recorder is a database that notes what it is asked, and answers nothing. Real ones are in
// integration/sql.
type recorder struct{ asked []string }

var errNoAnswer = errors.New("a recorder does not answer")

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }
func (r *recorder) Close() error                                 { return nil }
func (r *recorder) Begin() (driver.Tx, error)                    { return nil, errNoAnswer }
func (r *recorder) Prepare(query string) (driver.Stmt, error) {
	r.asked = append(r.asked, query)
	return nil, errNoAnswer
}

func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := fencesql.New(nil, fencesql.SQLite, nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("there is no database: %v", err)
	}
	_, err := fencesql.New(sql.OpenDB(&recorder{}), "MySQL", nil)
	if err == nil || !strings.Contains(err.Error(), "MySQL") || !strings.Contains(err.Error(), "fencesql.SQLite") {
		t.Errorf("a dialect that is not known: %v", err)
	}
}

// TestNames: names are quoted, and placeholders are those of the dialect.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect fencesql.Dialect
		table   string
		want    []string
	}{
		{fencesql.PostgreSQL, `guards."?"`, []string{`"guards"."""?"""`, "$1", "$2"}},
		{fencesql.SQLite, "", []string{`"leasehold_fence"`, "?"}},
	} {
		r := &recorder{}
		f, err := fencesql.New(sql.OpenDB(r), c.dialect, &fencesql.Options{Table: c.table})
		if err != nil {
			t.Fatal(err)
		}
		if err = f.Check(t.Context(), "r", fence.Token(7)); !errors.Is(err, errNoAnswer) {
			t.Errorf("%s: %v", c.dialect, err)
		}
		asked := strings.Join(r.asked, "; ")
		for _, part := range c.want {
			if !strings.Contains(asked, part) {
				t.Errorf("%s is asked %s, without %s", c.dialect, asked, part)
			}
		}
	}
}
