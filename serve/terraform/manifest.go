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

// A Version is one state of a name, and who stored it.
type Version struct {
	Number  int64  `json:"number"` // from 1, one more with each state of the name
	Deleted bool   `json:"deleted,omitempty"`
	Size    int64  `json:"size"`
	MD5     []byte `json:"md5,omitempty"`
	SHA256  string `json:"sha256,omitempty"`

	// What the state says of itself. Serial is nil if it says none.
	Serial    *int64 `json:"serial,omitempty"`
	Lineage   string `json:"lineage,omitempty"`
	Terraform string `json:"terraform_version,omitempty"`

	// What the lock said under which it was stored, and its token.
	Who       string          `json:"who,omitempty"`
	Operation string          `json:"operation,omitempty"`
	LockID    string          `json:"lock_id,omitempty"`
	Token     leasehold.Token `json:"token"`

	StoredAt time.Time `json:"stored_at"` // by the clock of the process that serves

	Data string `json:"data,omitempty"` // where it lies, below NAME/_states/
}

// A manifest is what the guarded object has: the states that are kept, the newest first. A state itself lies
// in an object of its own, so that it can be of any size and is byte for byte what Terraform sent; it counts
// when the manifest names it.
type manifest struct {
	Format int       `json:"format"`
	States []Version `json:"states"`
}

const manifestFormat = 1

var (
	errForeign = errors.New("not a list of states that this version understands")
	errDamaged = errors.New("it is not what was stored")
	// ErrNoState: there is no such state.
	ErrNoState = fmt.Errorf("there is no such state: %w", store.ErrNotExist)
)

// newest is the present state, or nil if there is none, or none any more.
func (m *manifest) newest() *Version {
	if len(m.States) == 0 || m.States[0].Deleted {
		return nil
	}
	return &m.States[0]
}

// with is the manifest after another state, of which at most keep are kept, and what is not kept any more.
func (m *manifest) with(v Version, keep int) (next manifest, dropped []Version) {
	next = manifest{Format: manifestFormat, States: append([]Version{v}, m.States...)}
	if len(next.States) > keep {
		next.States, dropped = next.States[:keep:keep], next.States[keep:]
	}
	return next, dropped
}

// manifestIn reads the value of the guarded object.
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

// look reads the manifest.
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

// Versions are the states of a name that are kept, the newest first: none if there is none. It costs 1 GET.
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

// Open opens a state of a name by its number, or the present one if that is 0. The caller closes it, and keeps
// the context until then. If there is no such state, the error matches [ErrNoState]. It costs 2 GET.
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
		// It may have been dropped since the list was read, and then that is another one.
		if errors.Is(err, store.ErrNotExist) && try < 3 {
			continue
		}
		if err != nil {
			// That there is none would have Terraform begin anew.
			return nil, *v, fmt.Errorf("%s: state %d is listed, and cannot be read: %w", name, v.Number, lacks(err))
		}
		return body, *v, nil
	}
}

// lacks makes an absence of what is to be there a failure.
func lacks(err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: %v", store.ErrRefused, err) //nolint:errorlint // it must not match
	}
	return err
}

// find is the state with that number, or the present one for 0; nil if there is none.
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

// dataName is where a state lies: its number, the token that it was sent under, and random bits.
func dataName(number int64, token leasehold.Token, random string) string {
	return fmt.Sprintf("%010d-%019d-%s", number, int64(token), random)
}

// tokenIn is the token in the name of a state, or 0.
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
