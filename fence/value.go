package fence

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/store"
)

// ErrReplaced: the value is no longer the present one. A separately stored value was replaced
// before it was opened or while it was read, or [Object.PutOver] found another value. Get it again.
var ErrReplaced = errors.New("the value was replaced meanwhile")

// A Value is one version of an [Object].
type Value struct {
	Exists bool            // the object was written and not deleted since
	Token  leasehold.Token // of the last write, including claims; 0 if there was no fence
	Size   int64           // in bytes

	o       *Object
	version store.Version // of the object; empty: there is no object
	body    []byte
	data    *pointer // instead of body
}

// ReadAll returns the bytes of the value: none if it does not exist. For a separately stored
// value it sends a GET; see Open.
func (v *Value) ReadAll(ctx context.Context) ([]byte, error) {
	r, err := v.Open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(r)
	return all, errors.Join(err, r.Close())
}

// Open returns the value as a stream, which can be read until ctx ends. The caller must close
// it. A separately stored value is verified by its hash: if it is incomplete, the last Read
// fails. If it has been replaced, the error matches [ErrReplaced].
func (v *Value) Open(ctx context.Context) (io.ReadCloser, error) {
	if v.data == nil {
		return io.NopCloser(bytes.NewReader(v.body)), nil
	}
	large, ok := v.o.st.(store.Large)
	if !ok {
		return nil, v.o.tooLarge()
	}
	r, _, err := large.GetLarge(ctx, v.o.beside(v.data.Data))
	if errors.Is(err, store.ErrNotExist) {
		err = fmt.Errorf("%v: %w", v.o, ErrReplaced)
	}
	if err != nil {
		return nil, err
	}
	return &checkedReader{r, sha256.New(), v}, nil
}

// A checkedReader returns an error at the end if the bytes are not those that were written.
type checkedReader struct {
	io.ReadCloser
	hash hash.Hash
	v    *Value
}

func (r *checkedReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.hash.Write(b[:n])
	if err == io.EOF && hex.EncodeToString(r.hash.Sum(nil)) != r.v.data.SHA256 { //nolint:errorlint // readers return it as it is
		err = fmt.Errorf("%v: what lies at %s is not what was written", r.v.o, r.v.data.Data)
	}
	return n, err
}

// value returns the Value of a state. Its pointer was checked when it was parsed.
func (o *Object) value(s *state) (*Value, error) {
	v := &Value{Exists: s.seal.kind != nothing, Token: s.seal.token, Size: int64(len(s.body)), o: o, version: s.version}
	if s.seal.kind != apart {
		v.body = bytes.Clone(s.body)
		return v, nil
	}
	p, err := o.pointer(s)
	if err != nil {
		return nil, o.foreign(err)
	}
	v.data, v.Size = p, p.Size
	return v, nil
}

// A pointer is the JSON in place of a separately stored value.
type pointer struct {
	Data   string `json:"data"` // relative to the object, so that it holds under any prefix
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (o *Object) pointer(s *state) (*pointer, error) {
	p := new(pointer)
	if err := json.Unmarshal(s.body, p); err != nil {
		return nil, fmt.Errorf("it says that its value is apart, and not where: %w", err)
	}
	if dir, name, _ := strings.Cut(p.Data, "/"); dir != base(o.key, 1)+dataSuffix || strings.Contains(name, "/") || store.CheckKey("fence", p.Data) != nil {
		return nil, fmt.Errorf("it says that its value is at %q, which is not beside it", p.Data)
	}
	return p, nil
}

const dataSuffix = ".data"

// dataKey returns the key for a separately stored value written with the token.
func (o *Object) dataKey(token leasehold.Token, i request.ID) string {
	return fmt.Sprintf("%s%s/%019d-%v", o.key, dataSuffix, int64(token), i)
}

// beside returns the key of a pointer's data.
func (o *Object) beside(name string) string { return path.Join(path.Dir(o.key), name) }

func (o *Object) tooLarge() error {
	return &store.Error{
		Op: "put", Key: o.key, Kind: store.ErrTooLarge,
		Cause: fmt.Errorf("%v keeps no bodies over %d bytes", o.st, store.MaxBody-sealSize),
	}
}

// head reads up to limit bytes, and reports whether that was all.
func head(r io.Reader, limit int) (body []byte, whole bool, err error) {
	body, err = io.ReadAll(io.LimitReader(r, int64(limit)+1))
	return body, len(body) <= limit, err
}

// putApart writes the value, which is body followed by r, to a separate object, and then points
// to it. It sends nothing for a fenced holder.
func (o *Object) putApart(ctx context.Context, h Holder, body []byte, r io.Reader, over *Value) error {
	large, ok := o.st.(store.Large)
	if !ok {
		return o.tooLarge()
	}
	now, err := o.read(ctx)
	switch {
	case err != nil && !request.Transient(err):
		return err
	case err == nil && now.seal.token > h.Token():
		return Refuse(h, o.String(), now.seal.token)
	}
	sum := sha256.New()
	key := o.dataKey(h.Token(), request.NewID())
	size, err := large.PutLarge(ctx, key, io.TeeReader(io.MultiReader(bytes.NewReader(body), r), sum))
	if err != nil {
		if errors.Is(err, store.ErrUnknownOutcome) { // of the data; the value has not changed
			err = &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: fmt.Errorf("%v", err)} //nolint:errorlint // see above
		}
		return o.withdraw(ctx, key, err)
	}
	line, err := json.Marshal(pointer{base(key, 2), size, hex.EncodeToString(sum.Sum(nil))})
	if err != nil {
		return err
	}
	a, err := o.replace(ctx, h, content{apart, line}, over)
	if err != nil && !a.mayPoint(line) {
		return o.withdraw(ctx, key, err)
	}
	return err
}

// withdraw deletes the data of a value that will never be pointed to, because of err.
func (o *Object) withdraw(ctx context.Context, key string, err error) error {
	if left := request.Delete(context.WithoutCancel(ctx), o.st, key); left != nil {
		return fmt.Errorf("%w; what was written of the value may be left at %s until Collect deletes it: %v", err, key, left) //nolint:errorlint // it is no reason of err
	}
	return err
}

// base returns the last n segments of a key.
func base(key string, n int) string {
	segments := strings.Split(key, "/")
	return strings.Join(segments[max(len(segments)-n, 0):], "/")
}

// removeData deletes the separate data of an old state, which nothing will point to again. If
// it fails, the write has landed all the same.
func (o *Object) removeData(ctx context.Context, old *state) {
	if old.seal.kind != apart { // its bytes are the user's, even if they look like a pointer
		return
	}
	p, err := o.pointer(old)
	if err != nil {
		return
	}
	if err := request.Delete(ctx, o.st, o.beside(p.Data)); err != nil {
		o.opts.Logger.Warn("the bytes of a replaced value are left until Collect deletes them", "object", o.String(), "left", o.beside(p.Data), "error", err)
	}
}

// Collect deletes separately stored values that are not pointed to: leftovers of writers that
// crashed or were fenced. A value with the object's present token may yet be pointed to, so it
// stays until the token has grown. Collect returns how many it deleted. It sends 1 GET, 1 LIST
// per 1000 values, and 1 DELETE for each it deletes.
func (o *Object) Collect(ctx context.Context) (deleted int, err error) {
	now, err := o.read(ctx)
	if err != nil {
		return 0, err
	}
	inUse := ""
	if p, err := o.pointer(now); err == nil {
		inUse = o.beside(p.Data)
	}
	prefix := o.key + dataSuffix + "/"
	for entry, err := range o.st.List(ctx, prefix, "") {
		if err != nil {
			return deleted, err
		}
		digits, _, _ := strings.Cut(strings.TrimPrefix(entry.Key, prefix), "-")
		token, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || leasehold.Token(token) >= now.seal.token || entry.Key == inUse {
			continue
		}
		if err := request.Delete(ctx, o.st, entry.Key); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}
