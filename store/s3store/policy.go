package s3store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/leasehold/leasehold/store"
)

// objectActions are the operations a policy can allow, in the order of error messages, with the
// actions that each needs on the objects.
var objectActions = []struct {
	operation string
	actions   []string
}{
	{"get", []string{"s3:GetObject"}},
	// A condition reveals something about the object, so S3 also requires the permission to
	// read it.
	{"put", []string{"s3:GetObject", "s3:PutObject"}},
	{"list", nil},
	{"delete", []string{"s3:DeleteObject"}},
	{"large", []string{"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}},
}

// A statement is a statement of an IAM policy. Its fields are in the usual order.
type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]string `json:",omitempty"`
}

// Policy returns the smallest IAM policy, as indented JSON, that allows these store operations:
// "get", "put", "list" and "delete" are the methods of [store.Store], "large" is [store.Large].
// Attach it to a role or a user. Policy sends nothing. The error matches [store.ErrInvalid] if
// there are no operations or an unknown one, or if the bucket is named by an access point,
// which needs a policy of its own in addition.
//
// A policy for get, put or large also allows listing under the prefix. Without s3:ListBucket,
// S3 responds with 403 for an object that does not exist, so a lock that was never held would
// look forbidden. S3 also checks this for requests without a prefix, so the policy allows these
// too, including listings, which show all keys of the bucket, but not the objects. If this is a
// problem, use a separate bucket for locks.
//
// A policy for put also allows get, because S3 requires it for a PUT with If-Match. With KMS
// keys you also need kms:Decrypt and kms:GenerateDataKey. Access to a directory bucket (S3
// Express) is granted for the whole bucket, whatever the prefix: either to read, or to read and
// write.
func (s *Store) Policy(operations ...string) (string, error) {
	if s.accessPoint() {
		return "", fmt.Errorf("s3store: %w: policy: %s is an access point; make the policy for its bucket, and see that the access point's own allows the same", store.ErrInvalid, s.bucket)
	}
	actions, err := actionsOf(operations)
	if err != nil {
		return "", fmt.Errorf("s3store: %w: policy: %w", store.ErrInvalid, err)
	}
	if strings.HasSuffix(s.bucket, directoryBucket) {
		return document(s.session(actions))
	}
	bucket := "arn:" + s.partition() + ":s3:::" + s.bucket
	under := literal(s.prefix) + "*"
	var statements []statement
	if len(actions) > 0 {
		statements = append(statements, statement{Sid: "Objects", Effect: "Allow", Action: actions, Resource: bucket + "/" + under})
	}
	gets, lists := slices.Contains(actions, "s3:GetObject"), slices.Contains(operations, "list")
	if gets || lists {
		statements = append(statements, s.listing("List", bucket, "StringLike", under))
	}
	// S3 does not document whether a GET of a missing object has the key as s3:prefix, or none.
	// Allow both. One statement with StringLikeIfExists would do, but MinIO does not support
	// it.
	if gets && s.prefix != "" {
		statements = append(statements, s.listing("TellMissing", bucket, "Null", "true"))
	}
	return document(statements...)
}

// accessPoint reports whether the bucket is named by an access point.
func (s *Store) accessPoint() bool {
	return strings.HasPrefix(s.bucket, "arn:") || strings.HasSuffix(s.bucket, "-s3alias") || strings.HasSuffix(s.bucket, "--xa-s3")
}

// actionsOf returns the actions the operations need on the objects, without duplicates.
func actionsOf(operations []string) (actions []string, err error) {
	if len(operations) == 0 {
		return nil, errors.New("it has no operations")
	}
	var known []string
	for _, o := range objectActions {
		known = append(known, o.operation)
		if !slices.Contains(operations, o.operation) {
			continue
		}
		for _, action := range o.actions {
			if !slices.Contains(actions, action) {
				actions = append(actions, action)
			}
		}
	}
	for _, operation := range operations {
		if !slices.Contains(known, operation) {
			return nil, fmt.Errorf("unknown operation %q; there are %s", operation, strings.Join(known, ", "))
		}
	}
	return actions, nil
}

// listing allows listings with a condition on the request's prefix.
func (s *Store) listing(sid, bucket, operator, value string) statement {
	st := statement{Sid: sid, Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: bucket}
	if s.prefix != "" {
		st.Condition = map[string]map[string]string{operator: {"s3:prefix": value}}
	}
	return st
}

// session allows sessions with a directory bucket. The bucket's name is unique in its zone and
// contains it, so region and account, which the store does not know, can be wildcards.
func (s *Store) session(actions []string) statement {
	st := statement{
		Sid: "Session", Effect: "Allow", Action: []string{"s3express:CreateSession"},
		Resource: "arn:" + s.partition() + ":s3express:*:*:bucket/" + s.bucket,
	}
	if !slices.ContainsFunc(actions, func(action string) bool { return action != "s3:GetObject" }) {
		// A client that names no mode, such as the SDK, gets the most that is allowed.
		st.Condition = map[string]map[string]string{"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
	}
	return st
}

// partitions are those of AWS, by prefixes of region names.
var partitions = []struct{ region, partition string }{
	{"cn-", "aws-cn"},
	{"eusc-", "aws-eusc"},
	{"us-gov-", "aws-us-gov"},
	{"us-iso-", "aws-iso"},
	{"us-isob-", "aws-iso-b"},
	{"eu-isoe-", "aws-iso-e"},
	{"us-isof-", "aws-iso-f"},
}

func (s *Store) partition() string {
	for _, p := range partitions {
		if strings.HasPrefix(s.client.Options().Region, p.region) {
			return p.partition
		}
	}
	return "aws"
}

// literal escapes a key, so the policy contains no wildcards or variables from it.
func literal(key string) string {
	return strings.NewReplacer("*", "${*}", "?", "${?}", "$", "${$}").Replace(key)
}

// document encodes a policy. IAM only accepts Latin-1, so all other characters than ASCII are
// escaped.
func document(statements ...statement) (string, error) {
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false) // a key may have an ampersand
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements})
	var out strings.Builder
	for _, r := range strings.TrimSpace(encoded.String()) {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String(), err
}
