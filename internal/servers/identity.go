package servers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// IAMNames are the servers with identities and policies: see [StartIAM]. gofakes3 allows
// everything to everyone.
var IAMNames = []string{"versitygw", "minio"}

// StartIAM is like Start, for one of [IAMNames]. Use [Server.Restricted] to make identities.
func StartIAM(t testing.TB, name string) *Server {
	t.Helper()
	path := binary(t, name)
	if name != "versitygw" {
		return start(t, name, assumesRoles, func(port *port, dir string) command {
			return pinned[name].command(path, port.addr, dir)
		})
	}
	// A separate process keeps identities and policies. The gateway asks it over a socket.
	dir, err := os.MkdirTemp("", "iam") //nolint:usetesting // the path of a socket may have about 100 bytes, and t.TempDir is named after the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	iam := start(t, name+" iam", listsUsers, func(port *port, dir string) command {
		return command{path: path, args: []string{
			"--access", accessKey, "--secret", secretKey, "--port", port.addr, "--keep-alive",
			"iam", "--quiet", "--dir", dir, "--private-ports", socket,
		}}
	})
	s := start(t, name, listsBuckets, func(port *port, dir string) command {
		cmd := pinned[name].command(path, port.addr, dir)
		cmd.env = append(cmd.env, "VGW_IAM_STANDALONE_ENDPOINT="+socket)
		return cmd
	})
	s.iam = iam
	return s
}

// assumesRoles reports whether a server makes identities. MinIO does so some time after it
// serves other requests.
func assumesRoles(ctx context.Context, s *Server) error {
	const everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]}`
	return s.assumeRole(ctx, new(Server), everything)
}

// listsUsers reports whether an IAM service serves requests.
func listsUsers(ctx context.Context, s *Server) error {
	return s.query(ctx, "iam", &struct{}{}, "Action", "ListUsers", "Version", "2010-05-08")
}

// Restricted makes an identity with only the permissions in the IAM policy, and returns the
// server with its credentials, for Client, ClientAt, URL and Env. The server must come from
// [StartIAM].
func (s *Server) Restricted(t testing.TB, policy string) *Server {
	t.Helper()
	as := &Server{Name: s.Name, Endpoint: s.Endpoint}
	var err error
	if s.iam != nil {
		err = s.iam.addUser(t.Context(), as, policy)
	} else {
		err = s.assumeRole(t.Context(), as, policy)
	}
	if err != nil {
		t.Fatalf("%s: make an identity with the policy %s: %v", s.Name, policy, err)
	}
	return as
}

// addUser makes a user with a policy, and sets the keys of as to its keys.
func (s *Server) addUser(ctx context.Context, as *Server, policy string) error {
	const version = "2010-05-08"
	name := strings.ToLower(rand.Text())
	if err := s.query(ctx, "iam", &struct{}{}, "Action", "CreateUser", "Version", version, "UserName", name); err != nil {
		return err
	}
	if err := s.query(ctx, "iam", &struct{}{}, "Action", "PutUserPolicy", "Version", version, "UserName", name, "PolicyName", "test", "PolicyDocument", policy); err != nil {
		return err
	}
	var answer struct {
		ID     string `xml:"CreateAccessKeyResult>AccessKey>AccessKeyId"`
		Secret string `xml:"CreateAccessKeyResult>AccessKey>SecretAccessKey"`
	}
	err := s.query(ctx, "iam", &answer, "Action", "CreateAccessKey", "Version", version, "UserName", name)
	as.AccessKey, as.SecretKey = answer.ID, answer.Secret
	return err
}

// assumeRole makes a session of the root user, limited by a policy, and sets the credentials of
// as to it.
func (s *Server) assumeRole(ctx context.Context, as *Server, policy string) error {
	var answer struct {
		ID     string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
		Secret string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
		Token  string `xml:"AssumeRoleResult>Credentials>SessionToken"`
	}
	err := s.query(ctx, "sts", &answer, "Action", "AssumeRole", "Version", "2011-06-15", "Policy", policy)
	as.AccessKey, as.SecretKey, as.SessionToken = answer.ID, answer.Secret, answer.Token
	return err
}

// query sends a request with these parameters, names and values in turn, in the protocol of IAM
// and STS, and parses the XML answer.
func (s *Server) query(ctx context.Context, service string, answer any, parameters ...string) error {
	form := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	body := form.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint+"/", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256([]byte(body))
	creds := aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}
	if err = v4.NewSigner().SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), service, "us-east-1", time.Now()); err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s: %s", form.Get("Action"), service, resp.Status, said)
	}
	return xml.Unmarshal(said, answer)
}
