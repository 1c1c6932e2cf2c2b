// Package store is the contract between leasehold and the place where its
// objects lie: a bucket, a container, a directory, a map in memory.
//
// A [Store] has what the protocol uses and nothing more: read one object, write
// one object on a condition, delete one, list some. The sentences with "must"
// below are the contract. Package storetest checks each of them, and a failure
// cites the sentence; a store that passes it can carry a lock.
//
// # What a store must promise
//
//   - Of all writes that name the same condition on the same key, at most one
//     must land (compare-and-swap).
//   - A read that begins after a write was answered must show that write or a
//     later one (read-after-write), on any connection.
//   - One call must be one request: no hidden retries. A retried conditional
//     write can land the first time and be refused the second, and then the
//     caller is told that it lost what it won.
//   - A write that may have landed must be reported as [ErrUnknownOutcome],
//     never as [ErrPrecondition] and never as an error without a kind.
//   - Two writes of different bodies must give different versions. The same body
//     may bring an old version back (on S3 an ETag hashes the content alone); to
//     tell such writes apart, put something unique into every body.
//
// All methods must be safe for concurrent use by multiple goroutines.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxBody is the largest body, in bytes, that Get and Put read and write: 1 MiB. A
// larger body goes through a [Large].
const MaxBody = 1 << 20

// MaxKey is the longest key in bytes. It is below the 1024 bytes of S3 so that
// a store has room for a prefix of its own.
const MaxKey = 768

// Version names one state of one object, as the store names it: an ETag on S3,
// a generation on Google Cloud Storage. It is opaque: compare it for equality
// and hand it back, nothing else. The zero Version names no state.
type Version string

// An Object is one object as one answer of the store showed it.
type Object struct {
	Key     string
	Body    []byte // nil in the answer to a Put
	Version Version

	// LastModified is when the object was written, by the store's own clock,
	// in the store's resolution (whole seconds on S3). Zero if unknown.
	LastModified time.Time

	// Date is when the store gave this answer, by the same clock as
	// LastModified. Zero if the answer did not say, or if it passed a cache on
	// its way (an Age or Via header), since then it is not the store's word.
	Date time.Time
}

// An Entry is one object in a listing.
type Entry struct {
	Key          string
	Version      Version
	Size         int64
	LastModified time.Time
}

// A Condition is what must be true of the object for a Put to land. The zero
// Condition is refused: an unconditional write is never what a lock means.
type Condition struct {
	absent bool
	match  Version
}

// IfAbsent lets a write land only where no object exists (If-None-Match: *).
func IfAbsent() Condition { return Condition{absent: true} }

// IfMatch lets a write land only over exactly the version v (If-Match).
func IfMatch(v Version) Condition { return Condition{match: v} }

// Absent reports whether the condition is that no object exists.
func (c Condition) Absent() bool { return c.absent }

// Match returns the version that the condition asks for, or "" if there is none.
func (c Condition) Match() Version { return c.match }

// Valid reports whether c came from [IfAbsent] or from [IfMatch] with a version.
func (c Condition) Valid() bool { return c.absent != (c.match != "") }

func (c Condition) String() string {
	switch {
	case c.absent:
		return "if absent"
	case c.match != "":
		return "if version " + string(c.match)
	}
	return "no condition"
}

// Store reads and writes small objects on conditions.
//
// Every error of a call must be an [*Error] whose kind is one of the sentinels
// of this package; when the context ended the call, the error must also match
// the context's error.
type Store interface {
	// Get reads the object.
	//
	// If there is no object, Get must return ErrNotExist. It must return it for
	// no answer but the store's own word about this object: a 404 of a proxy, of
	// another kind of server or about the credentials is an ErrUnavailable or an
	// ErrRefused that shows the answer. If unless is not
	// empty and is the object's current version, Get must return
	// ErrNotModified and need not transfer the body. If the body is larger
	// than MaxBody, Get must return ErrTooLarge and must not read it all.
	// If the bucket or directory itself does not exist, Get must not say
	// ErrNotExist: it must return ErrNoBucket, or treat the object as absent
	// only if a Put would create the place as well.
	Get(ctx context.Context, key string, unless Version) (*Object, error)

	// Put writes the object if the condition holds, and returns it as
	// written: key, version and times, without the body.
	//
	// If the condition does not hold, Put must return ErrPrecondition and the
	// object must be what it was; where IfMatch names a version and there is
	// no object at all, Put may return ErrNotExist instead. If the store says
	// that a rival write was under way and nothing landed, Put must return
	// ErrConflict. If the write may have landed, whatever the reason (the
	// context ended, the connection broke, the store answered 5xx), Put must
	// return ErrUnknownOutcome. If the store refuses the request in a way that
	// repeating it cannot change, and nothing landed, Put must return ErrDenied,
	// ErrNoBucket, ErrInvalid or ErrRefused, whichever fits; a caller does not
	// try again then. If the context has already ended, Put must
	// send nothing. A body over MaxBody must be refused with ErrTooLarge and
	// the zero Condition with ErrInvalid, both before anything is sent.
	// A reader must never see a part of a body.
	Put(ctx context.Context, key string, body []byte, only Condition) (*Object, error)

	// Delete removes the object; that there was none must not be an error. It
	// is for cleaning up only: no rule of the protocol rests on it, because
	// most stores delete whatever is there, condition or not.
	Delete(ctx context.Context, key string) error

	// List yields the objects whose keys begin with prefix and come after the
	// key after ("" for all), in ascending byte order of their keys, reading
	// all pages. It must show every write that was answered before it began.
	// Stopping the iteration early must stop the requests. An error is
	// yielded once, as the last element.
	List(ctx context.Context, prefix, after string) iter.Seq2[Entry, error]

	// String says where the store is, as a URL without secrets; for messages.
	String() string
}

// Hashed is a Store whose versions are hashes of its objects' bytes. So, given a body
// and a version, a caller can verify without a request that they belong together.
type Hashed interface {
	// VersionOf is the version that an object with this body has, or another one
	// where the store hashes more than the body.
	VersionOf(body []byte) Version
}

// Proof is evidence that a store is safe: a report of probe.Run or `leasehold doctor`, or a Store
// that knows what it is good for.
type Proof interface {
	// Proves returns nil if the store with this name is safe for the use: the name of a layout,
	// "epochs without If-Match", "marker without If-Match" or "fast start". If it returns an
	// error, it is called again with the lock's name, because a Proof may cover only a part of
	// the store.
	Proves(storeName, use string) error
}

// Proves returns why a store is not safe for the use, if the store is a Proof. Other stores are
// trusted. A store that wraps another one passes the question on.
func Proves(st Store, storeName, use string) error {
	own, ok := st.(Proof)
	if !ok {
		return nil
	}
	return own.Proves(storeName, use)
}

// Large is a Store that also keeps bodies of any size. Such an object is written
// once, under a key that nobody has used before (128 random bits in it are enough),
// and never changed, so it needs no version and no condition. It counts once an
// object that is written by Put names its key.
//
// Both methods must need a bounded part of the body in memory at a time, except in a
// store that keeps all its objects there.
type Large interface {
	// PutLarge writes what r yields until it says io.EOF as the object key, and
	// returns the size in bytes. It is the one call that may be many requests, and
	// that may repeat a request whose answer was lost: nobody else writes the key,
	// so a repetition can only write the same once more.
	//
	// A reader of the key must see all of the body or no object. If r fails,
	// PutLarge must return ErrInvalid and the error of r, and nothing must become
	// visible; an error that wraps io.EOF is a failure, not the end. If the object
	// may have landed or may yet land, PutLarge must return ErrUnknownOutcome; after
	// any other error there must be no object, nor parts of one that somebody pays
	// for, unless the error says that they stay. If the context has already ended,
	// PutLarge must send nothing and must not read r. A Read of r that is under way
	// is waited for.
	PutLarge(ctx context.Context, key string, r io.Reader) (int64, error)

	// GetLarge opens the object, whichever way it was written, and returns its size.
	// The caller closes it, and keeps the context until then: when that ends, Read
	// may fail.
	//
	// If there is no object, GetLarge must return ErrNotExist. A body that breaks off
	// must end in an *Error, as Get would return it, and never in io.EOF.
	GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error)
}

// Conditional is a Store that also deletes on a condition. No lock rests on it. Some servers take the condition and
// ignore it, and others look at it first and delete later, whatever is there then. So what rests on it tries it on
// the very server before.
type Conditional interface {
	// DeleteIf removes the object if it has the version v.
	//
	// If the object has another version, DeleteIf must return ErrPrecondition and the object must be what
	// it was. If there is no object, DeleteIf must return nil or ErrPrecondition. Of a DeleteIf and a Put
	// that name the same version, at most one must land. If the deletion may have landed or may yet land,
	// DeleteIf must return ErrUnknownOutcome. The zero Version must be refused with ErrInvalid before
	// anything is sent.
	DeleteIf(ctx context.Context, key string, v Version) error
}

// CheckDeleteIf reports why a DeleteIf with these arguments is refused before anything is sent.
func CheckDeleteIf(ctx context.Context, key string, v Version) error {
	if err := CheckKey("delete", key); err != nil {
		return err
	}
	if v == "" {
		return &Error{Op: "delete", Key: key, Kind: ErrInvalid, Cause: errors.New("a deletion on a condition needs a version")}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "delete", Key: key, Kind: ErrUnavailable, Cause: err}
	}
	return nil
}

// The kinds of error. One sentinel for each decision that a caller can make.
var (
	// ErrNotExist: no object has this key. Check the key, or create the object.
	ErrNotExist = errors.New("object does not exist")
	// ErrNotModified: the object still has the version you named. Use what you have read before.
	ErrNotModified = errors.New("object not modified")
	// ErrPrecondition: the condition does not hold, and this request changed nothing. An earlier
	// attempt, maybe your own, can be the reason: read the object before you decide.
	ErrPrecondition = errors.New("precondition failed")
	// ErrConflict: a rival write was in progress (409), and nothing landed. Try again.
	ErrConflict = errors.New("conflicting write under way")
	// ErrThrottled: the store asks for fewer requests (429, 503 Slow Down). Nothing landed, unless
	// the error also matches ErrUnknownOutcome. Wait, then try again.
	ErrThrottled = errors.New("throttled by the store")
	// ErrDenied: the credentials do not allow the request (401, 403), and nothing landed. Fix the
	// credentials or the policy.
	ErrDenied = errors.New("access denied")
	// ErrUnknownOutcome: the write may have landed, or may still land. Only a read that shows it,
	// or another conditional write, can settle it.
	ErrUnknownOutcome = errors.New("unknown outcome: the write may have landed")
	// ErrTooLarge: the body is larger than MaxBody. Store less, or use several objects.
	ErrTooLarge = errors.New("body too large")
	// ErrInvalid: no store accepts this key or condition, or the reader of a body failed. Fix the
	// call.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoBucket: the bucket or directory of the store does not exist. Create it, or correct the
	// URL.
	ErrNoBucket = errors.New("no such bucket or directory")
	// ErrRefused: the store refuses the request for good, and nothing landed. It does not know such
	// requests (501, 405), considers this one malformed (400, 411), has the bucket in another
	// region (301), or lacks something else (404). Change the settings or the store; retrying does
	// not help.
	ErrRefused = errors.New("refused by the store")
	// ErrUnavailable: the store could not be reached or could not answer, and nothing landed; or a
	// read failed for a reason of no other kind. Try again later.
	ErrUnavailable = errors.New("store unavailable")
)

// Error is an error of a call to a store. It matches, by errors.Is and
// errors.As, both its Kind and its Cause.
type Error struct {
	Op    string    // "get", "put", "delete", "list"
	Key   string    // the key, or the prefix of a list
	Kind  error     // one of the sentinels above
	Cause error     // what the SDK, the file system or the context said; may be nil
	Date  time.Time // the store's clock in the answer, if there was one and it said

	// RequestID is the store's name for the request, which its operators ask for.
	// It is empty if the store gave none, and no part of the message.
	RequestID string
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Kind)
	}
	return fmt.Sprintf("%s %q: %v: %v", e.Op, e.Key, e.Kind, e.Cause)
}

// Unwrap gives the kind first, then the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Final reports that the same call would fail in the same way again until a person
// changes something: access, the bucket, the name or the store itself. Nothing
// landed. A caller that retries other errors should return such an error at once.
func Final(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false // a write that may have landed has to be looked for, whatever else err is
	}
	for _, kind := range []error{ErrDenied, ErrNoBucket, ErrInvalid, ErrRefused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// RequestIDOf returns the store's name for the request that err came from, or "".
func RequestIDOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RequestID
	}
	return ""
}

// DateOf returns the store's own time in the answer that err came with, or the
// zero time.
func DateOf(err error) time.Time {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Date
	}
	return time.Time{}
}

// CheckKey reports, as an ErrInvalid, why key is not one that every store can
// keep: it must be valid UTF-8 of 1 to MaxKey bytes without control characters
// or backslashes, in segments of 1 to 200 bytes divided by single slashes, none
// of them "." or "..". Every store must apply it to the key of every call but
// List before it sends anything.
//
// A store may also refuse, with ErrInvalid, what it has no place for: a key that
// lies below another object's key ("a/b" where "a" is an object) or has a name
// that its file system or the store itself reserves.
func CheckKey(op, key string) error {
	var why string
	switch {
	case key == "":
		why = "the key is empty"
	case len(key) > MaxKey:
		why = fmt.Sprintf("the key has %d bytes, more than %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		why = "the key is not valid UTF-8"
	case strings.ContainsFunc(key, func(r rune) bool { return unicode.IsControl(r) || r == '\\' }):
		why = "the key has a control character or a backslash"
	default:
		for segment := range strings.SplitSeq(key, "/") {
			switch {
			case segment == "":
				why = "the key begins or ends with a slash, or has two in a row"
			case segment == "." || segment == "..":
				why = "the key has a segment \".\" or \"..\""
			case len(segment) > 200:
				why = fmt.Sprintf("the key has a segment of %d bytes, more than 200", len(segment))
			}
		}
	}
	if why == "" {
		return nil
	}
	return &Error{Op: op, Key: key, Kind: ErrInvalid, Cause: errors.New(why)}
}

// CheckPut reports why a Put with these arguments must be refused before
// anything is sent. Every store calls it first.
func CheckPut(ctx context.Context, key string, body []byte, only Condition) error {
	if err := CheckKey("put", key); err != nil {
		return err
	}
	if !only.Valid() {
		return &Error{Op: "put", Key: key, Kind: ErrInvalid, Cause: errors.New("a write needs a condition: IfAbsent or IfMatch with a version")}
	}
	if len(body) > MaxBody {
		return &Error{Op: "put", Key: key, Kind: ErrTooLarge, Cause: fmt.Errorf("%d bytes, more than %d", len(body), MaxBody)}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "put", Key: key, Kind: ErrUnavailable, Cause: err}
	}
	return nil
}
