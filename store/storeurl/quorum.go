package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// QuorumFile is the variable that names a file of quorums.
const QuorumFile = "LEASEHOLD_QUORUM_FILE"

// openQuorum opens the members of a quorum, which the URL has, or a line of a file under the URL's name.
func openQuorum(ctx context.Context, u *url.URL, query url.Values, files *filestore.Options) (store.Store, error) {
	opts := quorumstore.Options{
		Prefix: prefixOf(u),
		Open: func(ctx context.Context, place string) (store.Store, error) {
			return openMember(ctx, u, place, files)
		},
	}
	urls := query["member"]
	if u.Host != "" {
		var err error
		if urls, err = listed(u); err != nil {
			return nil, err
		}
		opts.Name = u.Host
	}
	var members []store.Store
	for _, raw := range urls {
		m, err := openMember(ctx, u, raw, files)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	st, err := quorumstore.New(members, &opts)
	if err != nil {
		return nil, bad(u, errors.Unwrap(err).Error())
	}
	return st, nil
}

// openMember opens one member, which is no quorum itself.
func openMember(ctx context.Context, u *url.URL, raw string, files *filestore.Options) (store.Store, error) {
	if strings.HasPrefix(raw, "quorum:") {
		return nil, bad(u, "a member is a quorum itself")
	}
	m, err := open(ctx, raw, files)
	if err != nil {
		return nil, fmt.Errorf("%s: a member: %w", u.Redacted(), err)
	}
	return m, nil
}

func checkQuorum(u *url.URL) error {
	members := u.Query()["member"]
	switch {
	case strings.Contains(u.Host, ":"):
		return bad(u, "the name of a quorum has no port")
	case u.Host != "" && len(members) > 0:
		return bad(u, "a quorum has a name, which is looked up in a file, or members, and not both: write quorum:///KEY?member=…")
	case u.Host == "" && len(members) == 0:
		return bad(u, "there are no members: write quorum:///KEY?member=URL&member=URL&member=URL, or quorum://NAME/KEY")
	}
	return nil
}

// listed gives the members of the quorum of that name.
func listed(u *url.URL) ([]string, error) {
	file := os.Getenv(QuorumFile)
	if file == "" {
		return nil, bad(u, "the name of a quorum is looked up in the file that "+QuorumFile+" names, and it is not set")
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrURL, QuorumFile, err)
	}
	var names []string
	for n, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if fields[0] == u.Host {
			if len(fields) == 1 {
				return nil, fmt.Errorf("%w: %s, line %d: the quorum %q has no members: a line has its name and their URLs", ErrURL, file, n+1, u.Host)
			}
			return fields[1:], nil
		}
		names = append(names, fields[0])
	}
	return nil, fmt.Errorf("%w: %s has no quorum %q; it has %s", ErrURL, file, u.Host, strings.Join(names, ", "))
}
