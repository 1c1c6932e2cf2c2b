package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// A Version is one stored state of a name, with its origin.
type Version struct {
	Number  int64  `json:"number"` // from 1, growing by one with each state of the name
	Deleted bool   `json:"deleted,omitempty"`
	Size    int64  `json:"size"`
	MD5     []byte `json:"md5,omitempty"`
	SHA256  string `json:"sha256,omitempty"`

	// From the state itself. Serial is nil if the state has none.
	Serial    *int64 `json:"serial,omitempty"`
	Lineage   string `json:"lineage,omitempty"`
	Terraform string `json:"terraform_version,omitempty"`

	// The token of the lock under which the state was stored, and what its LockInfo says.
	Who       string          `json:"who,omitempty"`
	Operation string          `json:"operation,omitempty"`
	LockID    string          `json:"lock_id,omitempty"`
	Token     leasehold.Token `json:"token"`

	StoredAt time.Time `json:"stored_at"` // by the clock of the serving process

	Data string `json:"data,omitempty"` // name of its object, below NAME/_states/
}

// A manifest is the content of the guarded object: the stored states, the newest first. Each
// state has an object of its own, so that it can have any size and stays byte for byte as
// Terraform sent it. It counts only if the manifest lists it.
type manifest struct {
	Format int       `json:"format"`
	States []Version `json:"states"`
}

const manifestFormat = 1

var (
	errForeign = errors.New("not a list of states that this version understands")
	errDamaged = errors.New("it is not what was stored")
	// ErrNoState: there is no state with this name and number. List the states to see those that
	// exist.
	ErrNoState = fmt.Errorf("there is no such state: %w", store.ErrNotExist)
)

// newest returns the current state, or nil if there is none or it was deleted.
func (m *manifest) newest() *Version {
	if len(m.States) == 0 || m.States[0].Deleted {
		return nil
	}
	return &m.States[0]
}

// with returns the manifest with v added and at most keep states, and the states dropped.
func (m *manifest) with(v Version, keep int) (next manifest, dropped []Version) {
	next = manifest{Format: manifestFormat, States: append([]Version{v}, m.States...)}
	if len(next.States) > keep {
		next.States, dropped = next.States[:keep:keep], next.States[keep:]
	}
	return next, dropped
}

func manifestIn(ctx context.Context, v *fence.Value) (*manifest, error) {
	if !v.Exists {
		return &manifest{}, nil
	}
	body, err := v.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	return decodeManifest(body)
}

func decodeManifest(body []byte) (*manifest, error) {
	m := &manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %s", errForeign, misfit(err))
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("%w: it has format %d, and this version knows format %d", errForeign, m.Format, manifestFormat)
	}
	return m, nil
}

func look(ctx context.Context, guarded *fence.Object) (*manifest, error) {
	v, err := guarded.Get(ctx)
	if errors.Is(err, store.ErrNotExist) {
		return &manifest{}, nil
	}
	if err != nil {
		return nil, err
	}
	return manifestIn(ctx, v)
}

// Versions returns the stored states of a name, the newest first, or none if there are none. It
// costs 1 GET.
func (h *Handler) Versions(ctx context.Context, name string) ([]Version, error) {
	guarded, err := h.guarded(name)
	if err != nil {
		return nil, err
	}
	m, err := look(ctx, guarded)
	if err != nil {
		return nil, err
	}
	return m.States, nil
}

func (h *Handler) guarded(name string) (*fence.Object, error) {
	if _, err := h.nameIn(h.opts.Path + name); err != nil {
		return nil, err
	}
	return fence.NewObject(h.st, h.place(name).state, nil)
}

// Open opens a state by its number, or the current one if number is 0. The caller must close
// it, and keep ctx alive until then. If there is no such state, the error matches [ErrNoState].
// Open costs 2 GET.
func (h *Handler) Open(ctx context.Context, name string, number int64) (io.ReadCloser, Version, error) {
	guarded, err := h.guarded(name)
	if err != nil {
		return nil, Version{}, err
	}
	for try := 1; ; try++ {
		m, err := look(ctx, guarded)
		if err != nil {
			return nil, Version{}, err
		}
		v := m.find(number)
		if v == nil {
			return nil, Version{}, fmt.Errorf("%s: %w", name, ErrNoState)
		}
		body, err := h.openData(ctx, h.place(name).states+"/"+v.Data)
		// The state may have been dropped since the manifest was read. Then the manifest has
		// changed.
		if errors.Is(err, store.ErrNotExist) && try < 3 {
			continue
		}
		if err != nil {
			// If the error said that it does not exist, Terraform would start from scratch.
			return nil, *v, fmt.Errorf("%s: state %d is listed, and cannot be read: %w", name, v.Number, lacks(err))
		}
		return body, *v, nil
	}
}

// lacks turns the absence of a listed object into a failure.
func lacks(err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: %v", store.ErrRefused, err) //nolint:errorlint // it must not match
	}
	return err
}

// find returns the state with that number, or the current one for 0, or nil if there is none.
func (m *manifest) find(number int64) *Version {
	if number == 0 {
		return m.newest()
	}
	for i := range m.States {
		if m.States[i].Number == number && !m.States[i].Deleted {
			return &m.States[i]
		}
	}
	return nil
}

func (h *Handler) openData(ctx context.Context, key string) (io.ReadCloser, error) {
	if large, is := h.st.(store.Large); is {
		body, _, err := large.GetLarge(ctx, key)
		return body, err
	}
	object, err := h.st.Get(ctx, key, "")
	if err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(string(object.Body))), nil
}

// dataName returns the name of a state's object: number, token and random bits.
func dataName(number int64, token leasehold.Token, random string) string {
	return fmt.Sprintf("%010d-%019d-%s", number, int64(token), random)
}

// tokenIn returns the token in the name of a state's object, or 0.
func tokenIn(name string) leasehold.Token {
	parts := strings.SplitN(name, "-", 3)
	if len(parts) != 3 {
		return 0
	}
	token, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return 0
	}
	return leasehold.Token(token)
}
