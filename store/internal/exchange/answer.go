package exchange

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// A Refusal is what an answer of 300 and above says.
type Refusal struct {
	Code, Message string // of an error in the form of the service
	Text          string // what begins a body in any other form
	Empty         bool   // there was no body
}

// maxRefusal is how much is read of the body of an answer that refuses. Those of the stores have a few KiB at
// most, and what comes from elsewhere may never end.
const maxRefusal = 64 << 10

// Refused reads the body of an answer and leaves it to be read again. A body that broke off counts as far as
// it came: what matters stands at its beginning. Empty says that there was none.
func Refused(answer *http.Response) (body []byte, empty bool) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	answer.ContentLength = int64(len(body))
	return body, len(body) == 0 && err == nil
}

// maxMessage bounds what is shown of a message. Those of the services are shorter, but for the names in them.
const maxMessage = 500

// Words gives what the answer says, for a message.
func (r *Refusal) Words(status int) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if r.Code != "" {
		text = fmt.Sprintf("%d %s", status, r.Code)
	}
	switch {
	case r.Message != "" && r.Message != r.Code:
		return text + ": " + shortened(strings.TrimSuffix(r.Message, "."), maxMessage)
	case r.Text != "":
		return fmt.Sprintf("%s: %q", text, r.Text)
	case r.Empty && r.Code == "":
		return text + ", without a body"
	}
	return text
}

var markup = onDemand(`(?s)<(style|script|!--).*?</(style|script)>|<[^>]*>`)

// Words gives what a page says, as far as it fits into a message.
func Words(body []byte) string {
	text := markup().ReplaceAllString(string(body), " ")
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	return shortened(text, 100)
}

// shortened is a text of so many characters at most.
func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

type closing struct {
	io.Reader
	io.Closer
}

// Limit bounds what an SDK reads of a success.
func Limit(answer *http.Response, most int64) {
	answer.Body = closing{io.LimitReader(answer.Body, most), answer.Body}
}

// CheckListing checks that an answer is a listing, in XML with such a root, and bounds it. The SDKs read
// whatever comes, and take the pages of a web server, and no page at all, for a listing without objects.
// The error begins with "the answer is no listing of " and what the service is called.
func CheckListing(answer *http.Response, most int64, isRoot func(name string) bool, service, leads string) error {
	const begins = 4 << 10
	Limit(answer, most)
	body := bufio.NewReaderSize(answer.Body, begins)
	begin, err := body.Peek(begins)
	d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(begin, []byte("\ufeff"))))
	d.Strict = false
	for {
		token, bad := d.Token()
		start, ok := token.(xml.StartElement)
		switch {
		case ok && isRoot(start.Name.Local):
			answer.Body = closing{body, answer.Body}
			return nil
		case bad == nil && !ok:
			continue // <?xml version="1.0"?>
		case err != nil && err != io.EOF:
			return errors.Join(err, answer.Body.Close())
		}
		_ = answer.Body.Close()
		return fmt.Errorf("the answer is no listing of %s but %q: does the endpoint lead to %s?", service, Words(begin), leads)
	}
}
