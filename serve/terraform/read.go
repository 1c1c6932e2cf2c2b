package terraform

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// versionHeader has the number of the state in the answer.
const versionHeader = "Leasehold-State-Version"

// get answers GET and HEAD: the current state, an earlier one, or the list of states.
func (h *Handler) get(c *call) *refusal {
	query := c.URL.Query()
	if query.Has("versions") {
		all, err := h.Versions(c.ctx, c.place.name)
		if err != nil {
			return refusalOf("the states that are kept", err)
		}
		if all == nil {
			all = []Version{}
		}
		writeJSON(c.w, c.Request, http.StatusOK, "application/json", all)
		return nil
	}
	number := int64(0)
	if query.Has("version") {
		n, err := strconv.ParseInt(query.Get("version"), 10, 64)
		if err != nil || n < 1 {
			return refuse(http.StatusBadRequest, "%q is no number of a state: ?versions lists them", clip(query.Get("version"), 40))
		}
		number = n
	}
	body, v, err := h.Open(c.ctx, c.place.name, number)
	if errors.Is(err, ErrNoState) {
		return refuse(http.StatusNotFound, "there is no state %s", c.place.name)
	}
	if err != nil {
		return refusalOf("the state", err)
	}
	defer body.Close()
	return h.send(c, body, v)
}

// send streams a state to the client. If the object is damaged, the answer is cut off, so that
// the client does not accept it. A small state is checked before the answer begins.
func (h *Handler) send(c *call, body io.Reader, v Version) *refusal {
	header := c.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.FormatInt(v.Size, 10))
	header.Set("Content-MD5", base64.StdEncoding.EncodeToString(v.MD5))
	header.Set(versionHeader, strconv.FormatInt(v.Number, 10))
	if c.Method == http.MethodHead {
		return nil
	}
	if v.Size <= smallState {
		return h.sendSmall(c, body, v)
	}
	// The last bytes are sent only after all have been checked.
	sum := sha256.New()
	_, err := io.CopyN(io.MultiWriter(c.w, sum), body, v.Size-heldBack)
	if err == nil {
		var last []byte
		last, err = io.ReadAll(io.LimitReader(body, heldBack+1))
		sum.Write(last)
		if err == nil && (len(last) != heldBack || hex.EncodeToString(sum.Sum(nil)) != v.SHA256) {
			err = fmt.Errorf("%s: %w", v.Data, errDamaged)
		}
		if err == nil {
			_, err = c.w.Write(last)
		}
	}
	if err != nil {
		h.log.Warn("a state was not sent to its end", "state", c.place.name, "number", v.Number, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// heldBack is the number of bytes sent last.
const heldBack = 1024

func (h *Handler) sendSmall(c *call, body io.Reader, v Version) *refusal {
	all, err := io.ReadAll(io.LimitReader(body, v.Size+1))
	if err == nil && sha256Of(all) != v.SHA256 {
		err = fmt.Errorf("%s: %w", v.Data, errDamaged)
	}
	if err != nil {
		c.w.Header().Del("Content-Length")
		c.w.Header().Del("Content-MD5")
		return refusalOf(fmt.Sprintf("state %d of %s", v.Number, c.place.name), err)
	}
	_, _ = c.w.Write(all) // if the client has left, it needs none
	return nil
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
