package s3lect_test

import (
	"context"
	"crypto/tls"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
)

// Programs that were written for the original package rely on each name that it
// exports, with its type. The test is that this compiles.
var (
	_ error = s3lect.ErrStorageNotFound
	_ error = s3lect.ErrStoragePrecondition

	_ func(s3lect.Elector, *slog.Logger) http.HandlerFunc                        = s3lect.NewLeadershipHandler
	_ func(s3lect.HealthServerConfig) (*s3lect.HealthServer, error)              = s3lect.NewHealthServer
	_ func() *s3lect.MockStorage                                                 = s3lect.NewMock
	_ func(string) (*s3lect.MockStorage, error)                                  = s3lect.NewMockStorage
	_ func(s3lect.S3ElectorOptions) (*s3lect.S3Elector, error)                   = s3lect.NewS3Elector
	_ func(*s3lect.ElectorConfig) error                                          = (*s3lect.ElectorConfig).Validate
	_ func(*s3lect.HealthServer, context.Context) error                          = (*s3lect.HealthServer).Start
	_ func(*s3lect.HealthServer, context.Context) error                          = (*s3lect.HealthServer).Stop
	_ func(*s3lect.MockStorage) error                                            = (*s3lect.MockStorage).Cleanup
	_ func(*s3lect.MockStorage, context.Context, string) ([]byte, string, error) = (*s3lect.MockStorage).Get
	_ func(*s3lect.MockStorage, context.Context, string, []byte, string) error   = (*s3lect.MockStorage).PutIfMatch

	_ s3lect.Elector = (*s3lect.S3Elector)(nil)
	_ s3lect.Storage = (*s3lect.MockStorage)(nil)

	// Interfaces are assigned in both directions: no method more, none less.
	_ elector        = s3lect.Elector(nil)
	_ s3lect.Elector = elector(nil)
	_ storageAPI     = s3lect.Storage(nil)
	_ s3lect.Storage = storageAPI(nil)
)

type elector interface {
	Start(context.Context) error
	Stop() error
	IsLeader() bool
	WaitForLeadership(context.Context) error
	WaitForNextElection(context.Context, time.Time) (*s3lect.LeadershipStatus, error)
	LeaderID() string
	GetLeadershipStatus() *s3lect.LeadershipStatus
	EnablePeerMode([]byte) error
	UpdateConfig(s3lect.ElectorConfig) error
	GetConfig() *s3lect.ElectorConfig
}

type storageAPI interface {
	Get(ctx context.Context, key string) ([]byte, string, error)
	PutIfMatch(ctx context.Context, key string, data []byte, etag string) error
}

// Structs are assigned from types without a name, which needs the same fields in the
// same order with the same tags.
var (
	_ s3lect.ElectorConfig = struct {
		LockfilePath        string
		ServerID            string
		ServerAddr          string
		FrequentInterval    time.Duration
		InfrequentInterval  time.Duration
		LeaderTimeout       time.Duration
		PeerMode            bool
		PeerHealthPath      string
		PeerTimeout         time.Duration
		PeerCACert          []byte
		OnAcquireLeadership func(ctx context.Context) error
		OnLoseLeadership    func(ctx context.Context) error
	}{}
	_ s3lect.HealthServerConfig = struct {
		BindAddress string
		Certificate tls.Certificate
		Elector     s3lect.Elector
		Logger      *slog.Logger
	}{}
	_ s3lect.LeaderRecord = struct {
		LeaderID    string                      `json:"leaderID,omitempty"`
		LeaderAddr  string                      `json:"leaderAddr,omitempty"`
		LastUpdated time.Time                   `json:"lastUpdated"`
		Metadata    s3lect.LeaderRecordMetadata `json:"-"`
	}{}
	_ s3lect.LeaderRecordMetadata = struct{ ETag string }{}
	_ s3lect.LeadershipStatus     = struct {
		ServerID         string    `json:"serverID"`
		LockfilePath     string    `json:"lockfilePath"`
		IsLeader         bool      `json:"isLeader"`
		LeaderID         string    `json:"leaderID"`
		LeaderAddr       string    `json:"leaderAddr"`
		LeaderLastSeen   time.Time `json:"leaderLastSeen"`
		LastElectionTime time.Time `json:"lastElectionTime"`
		ConsecutiveFails int       `json:"consecutiveFails"`
	}{}
	_ s3lect.S3ElectorOptions = struct {
		Config  *s3lect.ElectorConfig
		Storage s3lect.Storage
		Logger  *slog.Logger
	}{}
)

// And nothing else is exported, so that no program comes to need more.
func TestNothingElseIsExported(t *testing.T) {
	want := []string{
		"Elector", "ElectorConfig", "ElectorConfig.Validate", "ErrStorageNotFound", "ErrStoragePrecondition",
		"HealthServer", "HealthServer.Start", "HealthServer.Stop", "HealthServerConfig",
		"LeaderRecord", "LeaderRecordMetadata", "LeadershipStatus",
		"MockStorage", "MockStorage.Cleanup", "MockStorage.Get", "MockStorage.PutIfMatch",
		"NewHealthServer", "NewLeadershipHandler", "NewMock", "NewMockStorage", "NewS3Elector",
		"S3Elector", "S3Elector.EnablePeerMode", "S3Elector.GetConfig", "S3Elector.GetLeadershipStatus", "S3Elector.IsLeader",
		"S3Elector.LeaderID", "S3Elector.Start", "S3Elector.Stop", "S3Elector.UpdateConfig", "S3Elector.WaitForLeadership",
		"S3Elector.WaitForNextElection", "S3ElectorOptions", "Storage",
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			got = append(got, exported(d)...)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("exported are\n%v and not\n%v", got, want)
	}
}

// exported gives the names that a declaration exports.
func exported(d ast.Decl) (names []string) {
	add := func(prefix string, name *ast.Ident) {
		if name.IsExported() {
			names = append(names, prefix+name.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add("", d.Name)
			break
		}
		of := d.Recv.List[0].Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		if typ, ok := of.(*ast.Ident); ok && typ.IsExported() {
			add(typ.Name+".", d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add("", spec.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add("", name)
				}
			}
		}
	}
	return names
}
