package azstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var _ store.Inspector = (*Store)(nil)

// Inspect implements [store.Inspector]. Settings of the account need the account's key or an
// account SAS, or an identity that may read the settings of the blob service; a SAS of the
// container is not enough. For Purge, a SAS needs the permission to delete versions (x), and an
// identity the role Storage Blob Data Owner. Whether blobs are versioned is known only after
// the store's first write.
func (s *Store) Inspect() store.Inspection { return inspection{s} }

type inspection struct{ *Store }

// Unquoted returns nil, because Azure requires the quotes around ETags.
func (i inspection) Unquoted() store.Store { return nil }

func (i inspection) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := i.check("delete", key); err != nil {
		return err
	}
	c := &call{Call: exchange.Call{Op: "delete", Key: key}}
	when := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: etag(v)}}
	if _, err := i.blob(i.once, key).Delete(c.watch(ctx), &blob.DeleteOptions{AccessConditions: when}); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

func (i inspection) Overwrite(ctx context.Context, key string, body []byte) error {
	if err := i.check("put", key); err != nil {
		return err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}}
	if _, err := i.blob(i.once, key).Upload(c.watch(ctx), streaming.NopCloser(bytes.NewReader(body)), nil); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// Settings reads the settings of the container and the account.
func (i inspection) Settings(ctx context.Context) []store.Setting {
	versioning := store.Setting{Name: "versioning"}
	switch {
	case i.versioned.Load():
		versioning.Value = "enabled"
	case !i.wrote.Load():
		versioning.Err = &store.Error{Op: "inspect", Key: versioning.Name, Kind: store.ErrUnavailable, Cause: errors.New("nothing was written yet, whose answer would tell")}
	}
	place := &container.GetPropertiesResponse{}
	placeErr := i.setting(ctx, "container", func(ctx context.Context) error {
		out, err := i.once.GetProperties(ctx, nil)
		*place = out
		return err
	})
	return []store.Setting{
		versioning,
		{Name: "retention", Value: yes(place.HasImmutabilityPolicy, "a policy of immutability keeps every blob as it is"), Err: placeErr},
		{Name: "holds", Value: yes(place.HasLegalHold, "a legal hold keeps every blob as it is"), Err: placeErr},
		i.softDelete(ctx),
		i.hierarchy(ctx),
	}
}

func (i inspection) setting(ctx context.Context, name string, ask func(context.Context) error) error {
	c := &call{Call: exchange.Call{Op: "inspect", Key: name}}
	if err := ask(c.watch(ctx)); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

func (i inspection) softDelete(ctx context.Context) store.Setting {
	set := store.Setting{Name: "soft delete"}
	set.Err = i.setting(ctx, set.Name, func(ctx context.Context) error {
		account, err := i.account()
		if err != nil {
			return err
		}
		out, err := account.GetProperties(ctx, nil)
		if p := out.DeleteRetentionPolicy; p != nil && deref(p.Enabled) {
			set.Value = fmt.Sprintf("what is overwritten or deleted is kept for %d days", deref(p.Days))
		}
		return err
	})
	return set
}

func (i inspection) hierarchy(ctx context.Context) store.Setting {
	set := store.Setting{Name: "hierarchical namespace"}
	set.Err = i.setting(ctx, set.Name, func(ctx context.Context) error {
		out, err := i.once.GetAccountInfo(ctx, nil)
		set.Value = yes(out.IsHierarchicalNamespaceEnabled, "enabled")
		return err
	})
	return set
}

func yes(is *bool, value string) string {
	if deref(is) {
		return value
	}
	return ""
}

// Purge deletes all versions. Soft-deleted objects expire by themselves.
func (i inspection) Purge(ctx context.Context, directory string) (requests int, err error) {
	const rounds = 8 // a blob takes two: it becomes a version first
	prefix := i.prefix + directory + "/"
	for range rounds {
		any := false
		pager := i.once.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Versions: true}})
		for pager.More() {
			c := &call{Call: exchange.Call{Op: "list", Key: directory}}
			requests++
			page, err := pager.NextPage(c.watch(ctx))
			if err != nil {
				return requests, c.fail(ctx, err)
			}
			if page.Segment == nil {
				continue
			}
			any = any || len(page.Segment.BlobItems) > 0
			requests += len(page.Segment.BlobItems)
			if err = inParallel(page.Segment.BlobItems, func(b *container.BlobItem) error { return i.remove(ctx, b) }); err != nil {
				return requests, err
			}
		}
		if !any {
			return requests, nil
		}
	}
	return requests, &store.Error{Op: "delete", Key: directory, Kind: store.ErrUnavailable, Cause: errors.New("versions come back when they are deleted")}
}

// remove deletes one version. The current version is deleted as the blob itself.
func (i inspection) remove(ctx context.Context, b *container.BlobItem) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: strings.TrimPrefix(deref(b.Name), i.prefix)}}
	client := i.once.NewBlobClient(deref(b.Name))
	if b.VersionID != nil && !deref(b.IsCurrentVersion) {
		var err error
		if client, err = client.WithVersionID(*b.VersionID); err != nil {
			return c.fail(ctx, err)
		}
	}
	if _, err := client.Delete(c.watch(ctx), nil); err != nil {
		if err = c.fail(ctx, err); !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inParallel calls f for all elements, several at a time, and joins the errors.
func inParallel[T any](all []T, f func(T) error) (err error) {
	const abreast = 16
	for some := range slices.Chunk(all, abreast) {
		errs := make(chan error)
		for _, one := range some {
			go func() { errs <- f(one) }()
		}
		for range some {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const blobActions = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"

// dataActions are what the operations need, in the order of error messages.
var dataActions = []struct {
	operation string
	needs     []string
}{
	{"get", []string{"read"}},
	{"put", []string{"write"}},
	{"list", []string{"read"}},
	{"delete", []string{"delete"}},
	{"large", []string{"read", "write"}},
}

// Policy returns the smallest custom role of Azure, as indented JSON, that allows these store
// operations: "get", "put", "list" and "delete" are the methods of [store.Store], "large" is
// [store.Large]. Fill in the subscription, create the role with "az role definition create
// --role-definition FILE", and assign it on the container. The error matches [store.ErrInvalid]
// if there are no operations or an unknown one.
func (s *Store) Policy(operations ...string) (string, error) {
	var needs, known []string
	for _, p := range dataActions {
		known = append(known, p.operation)
		if slices.Contains(operations, p.operation) {
			for _, action := range p.needs {
				needs = append(needs, blobActions+action)
			}
		}
	}
	for _, operation := range operations {
		if !slices.Contains(known, operation) {
			return "", fmt.Errorf("azstore: %w: policy: unknown operation %q; there are %s", store.ErrInvalid, operation, strings.Join(known, ", "))
		}
	}
	if len(needs) == 0 {
		return "", invalid("policy: it has no operations")
	}
	slices.Sort(needs)
	text, err := json.MarshalIndent(struct {
		Name             string
		IsCustom         bool
		Description      string
		Actions          []string
		DataActions      []string
		AssignableScopes []string
	}{
		"Leasehold", true, "Locks of leasehold", []string{}, slices.Compact(needs), []string{"/subscriptions/SUBSCRIPTION"},
	}, "", "  ")
	return string(text), err
}

// accountURL returns the URL of a container's account, with the same query.
func accountURL(containerURL string) string {
	u, _ := url.Parse(containerURL) // describe has checked it
	u.Path = u.Path[:strings.LastIndexByte(strings.TrimSuffix(u.Path, "/"), '/')+1]
	u.RawPath = ""
	return u.String()
}
