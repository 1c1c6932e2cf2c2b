package terraform

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// body reads the body of a request, and checks Content-MD5. Bodies over 1 MiB wait for room.
func (h *Handler) body(c *call, limit int64) ([]byte, *refusal) {
	if c.ContentLength > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body has %d bytes, more than %d", c.ContentLength, limit)
	}
	if limit > smallState && (c.ContentLength < 0 || c.ContentLength > smallState) {
		select {
		case h.large <- struct{}{}:
			c.undo = append(c.undo, func() { <-h.large })
		case <-c.ctx.Done():
			return nil, refuse(http.StatusServiceUnavailable, "other large states are being stored")
		}
	}
	var body bytes.Buffer
	if c.ContentLength > 0 {
		body.Grow(int(c.ContentLength))
	}
	if _, err := body.ReadFrom(http.MaxBytesReader(c.w, c.Body, limit)); err != nil {
		if _, is := errors.AsType[*http.MaxBytesError](err); is {
			return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", limit)
		}
		return nil, refuse(http.StatusBadRequest, "the body broke off: %v", err)
	}
	if said := c.Header.Get("Content-MD5"); said != "" {
		if sum := md5.Sum(body.Bytes()); said != base64.StdEncoding.EncodeToString(sum[:]) {
			return nil, refuse(http.StatusBadRequest, "the body is not what was sent: its MD5 is %s, and Content-MD5 says %q",
				base64.StdEncoding.EncodeToString(sum[:]), clip(said, 64))
		}
	}
	return body.Bytes(), nil
}

type state struct {
	Version
	body []byte
}

func (h *Handler) stateIn(c *call) (*state, *refusal) {
	body, f := h.body(c, h.opts.MaxState)
	if f != nil {
		return nil, f
	}
	var says struct {
		Serial    *int64 `json:"serial"`
		Lineage   string `json:"lineage"`
		Terraform string `json:"terraform_version"`
	}
	if err := json.Unmarshal(body, &says); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not the JSON of a state: %s", misfit(err))
	}
	if bytes.TrimLeft(body, " \t\r\n")[0] != '{' { // null is JSON too
		return nil, refuse(http.StatusBadRequest, "the body is not the JSON of a state: it is no object")
	}
	sum := md5.Sum(body)
	return &state{body: body, Version: Version{
		Size: int64(len(body)), MD5: sum[:], SHA256: sha256Of(body),
		Serial: says.Serial, Lineage: clip(says.Lineage, maxID), Terraform: clip(says.Terraform, maxID),
	}}, nil
}

func (h *Handler) post(c *call) *refusal {
	s, f := h.stateIn(c)
	if f != nil {
		return f
	}
	return h.change(c, s)
}

// remove answers DELETE. The current state becomes an earlier one.
func (h *Handler) remove(c *call) *refusal {
	return h.change(c, &state{Version: Version{Deleted: true}})
}

// change stores a state under the lock whose ID is in the request, or under a lock of its own.
func (h *Handler) change(c *call, s *state) *refusal {
	if f := h.turn(c); f != nil {
		return f
	}
	id := c.URL.Query().Get("ID")
	if id == "" {
		return h.changeUnlocked(c, s)
	}
	// The record decides, not this process's memory: the lock may have been broken elsewhere,
	// or granted by a process that has died. Nor does time: the token protects the successor's
	// state, so a run that was not renewed loses nothing until another run has locked.
	now, err := h.locks.Inspect(c.ctx, c.place.lock)
	if err != nil {
		return refusalOf("the lock could not be read", err)
	}
	holder := lockInfoOf(now)
	switch {
	case !now.Held:
		return refuse(http.StatusConflict, "the state %s is not locked any more by %s: its lock was released or broken", c.place.name, clip(id, maxID))
	case holder.ID != id:
		return heldBy(http.StatusConflict, holder)
	}
	guarded, err := fence.NewObject(h.st, c.place.state, nil)
	if err != nil {
		return refusalOf("the state", err)
	}
	// LOCK has claimed it, so this only reads, or is refused.
	by := fence.Token(now.Token)
	v, err := guarded.Claim(c.ctx, by)
	if err != nil {
		return refusalOf("the state that is stored", err)
	}
	m, err := manifestIn(c.ctx, v)
	if err != nil {
		return refusalOf("the state that is stored", err)
	}
	if why := s.late(m.newest(), by.Token()); why != "" {
		return refuse(http.StatusConflict, "a state is refused that comes too late: %s", why)
	}
	return h.store(c, s, &stored{m, v, guarded}, by, holder)
}

// changeUnlocked stores a state sent without a lock. It takes the lock, without waiting, so
// that it overwrites no other run's state. Because the run read its state without a lock, the
// new state must follow the stored one.
func (h *Handler) changeUnlocked(c *call, s *state) *refusal {
	info := LockInfo{ID: randomID(), Operation: c.Method + " without a lock", Who: clip(c.RemoteAddr, maxWho), Created: time.Now()}
	lease, f := h.acquire(c, info)
	if f != nil {
		return f
	}
	defer h.letGo(c, lease)
	guarded, err := fence.NewObject(h.st, c.place.state, nil)
	if err != nil {
		return refusalOf("the state", err)
	}
	v, err := guarded.Claim(c.ctx, lease)
	if err != nil {
		return refusalOf("the state could not be claimed", err)
	}
	m, err := manifestIn(c.ctx, v)
	if err != nil {
		return refusalOf("the state that is stored", err)
	}
	if why := s.follows(m.newest()); why != "" {
		return refuse(http.StatusConflict, "a state without a lock is refused: %s", why)
	}
	return h.store(c, s, &stored{m, v, guarded}, lease, info)
}

// stored is what was stored before a change.
type stored struct {
	*manifest
	value   *fence.Value // the manifest's value
	guarded *fence.Object
}

// late returns why a state is older than one the same run has stored, or "". This happens when
// a client leaves and repeats its request while another process still works on the first one.
// Serials grow within a run.
func (s *state) late(now *Version, token leasehold.Token) string {
	if now == nil || now.Token != token || s.Deleted || s.Lineage != now.Lineage || s.Serial == nil || now.Serial == nil || *s.Serial >= *now.Serial {
		return ""
	}
	return fmt.Sprintf("its serial is %d, and the same run has stored %d", *s.Serial, *now.Serial)
}

// follows returns why a state does not follow the current one, or "".
func (s *state) follows(now *Version) string {
	switch {
	case s.Deleted, now == nil, now.SHA256 == s.SHA256:
		return ""
	case s.Lineage != now.Lineage:
		return fmt.Sprintf("its lineage is %q, and that of the stored one %q", s.Lineage, now.Lineage)
	case s.Serial == nil || now.Serial == nil:
		return "it, or the stored one, has no serial"
	case *s.Serial <= *now.Serial:
		return fmt.Sprintf("its serial is %d, and the stored one has %d by now", *s.Serial, *now.Serial)
	}
	return ""
}

// store writes the state to an object of its own, and then to the manifest. The second write is
// fenced.
func (h *Handler) store(c *call, s *state, m *stored, by fence.Holder, lock LockInfo) *refusal {
	if now := m.newest(); now == nil && s.Deleted || now != nil && now.SHA256 == s.SHA256 {
		return h.done(c, nil) // Terraform has repeated the request, or nothing has changed
	}
	v := s.Version
	v.Number, v.Token, v.StoredAt = 1, by.Token(), time.Now().UTC()
	v.Who, v.Operation, v.LockID = lock.Who, lock.Operation, lock.ID
	first := true // under this lock
	if len(m.States) > 0 {
		v.Number, first = m.States[0].Number+1, m.States[0].Token != v.Token
	}
	if !s.Deleted {
		v.Data = dataName(v.Number, v.Token, randomID())
		if err := h.putData(c.ctx, c.place.states+"/"+v.Data, s.body); err != nil {
			return refusalOf("the state could not be stored", err)
		}
	}
	next, dropped := m.with(v, h.opts.Versions)
	text, err := json.Marshal(next)
	if err == nil {
		err = m.guarded.PutOver(c.ctx, by, m.value, bytes.NewReader(append(text, '\n')))
	}
	if err != nil {
		if v.Data != "" && !errors.Is(err, store.ErrUnknownOutcome) { // nothing names it, nor will
			h.discard(c, v.Data)
		}
		return refusalOf("the state could not be stored", err)
	}
	for _, old := range dropped {
		if old.Data != "" {
			h.discard(c, old.Data)
		}
	}
	if first {
		h.collect(c, &next, v.Token)
	}
	return h.done(c, &v)
}

// done answers that the state is stored. v is nil if it already was.
func (h *Handler) done(c *call, v *Version) *refusal {
	if v != nil {
		h.log.Info("stored", "state", c.place.name, "number", v.Number, "bytes", v.Size, "deleted", v.Deleted, "token", int64(v.Token), "id", v.LockID)
	}
	c.w.Header().Set("Content-Length", "0")
	return nil
}

// putData writes a state to an object that no manifest lists yet.
func (h *Handler) putData(ctx context.Context, key string, body []byte) error {
	if large, is := h.st.(store.Large); is {
		_, err := large.PutLarge(ctx, key, bytes.NewReader(body))
		return err
	}
	_, err := h.st.Put(ctx, key, body, store.IfAbsent())
	return err
}

// discard deletes a state. If it fails, the first write under a later lock deletes the state.
func (h *Handler) discard(c *call, data string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 10*time.Second)
	defer cancel()
	if err := h.st.Delete(ctx, c.place.states+"/"+data); err != nil {
		h.log.Warn("an old state was not deleted yet", "state", c.place.name, "data", data, "error", err)
	}
}

// most is the maximum number of objects deleted at a time.
const most = 1000

// collect deletes what interrupted earlier runs have left. A state under a smaller token that
// is not in the manifest will never be listed. One under this token may be about to be.
func (h *Handler) collect(c *call, m *manifest, token leasehold.Token) {
	named := map[string]bool{}
	for _, v := range m.States {
		named[v.Data] = true
	}
	prefix, deleted := c.place.states+"/", 0
	for entry, err := range h.st.List(c.ctx, prefix, "") {
		if err != nil {
			h.log.Warn("what earlier runs have left was not looked for", "state", c.place.name, "error", err)
			return
		}
		data := entry.Key[len(prefix):]
		if of := tokenIn(data); of == 0 || of >= token || named[data] {
			continue
		}
		if deleted++; deleted > most {
			return
		}
		h.discard(c, data)
	}
}

func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails, see crypto/rand
	return hex.EncodeToString(b)
}
