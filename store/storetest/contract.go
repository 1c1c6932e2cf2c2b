package storetest

// The sentences of package store that the cases cite, word for word; a test
// compares them with their source.
const (
	compareAndSwap     = `Of all writes that name the same condition on the same key, at most one must land (compare-and-swap).`
	readsLatest        = `A read that begins after a write was answered must show that write or a later one (read-after-write), on any connection.`
	landedIsUnknown    = `A write that may have landed must be reported as ErrUnknownOutcome, never as ErrPrecondition and never as an error without a kind.`
	versionsDiffer     = `Two writes of different bodies must give different versions.`
	zeroVersion        = `The zero Version names no state.`
	dateClock          = `Date is when the store gave this answer, by the same clock as LastModified.`
	errorsTyped        = `Every error of a call must be an *Error whose kind is one of the sentinels of this package; when the context ended the call, the error must also match the context's error.`
	getReads           = `Get reads the object.`
	getNotExist        = `If there is no object, Get must return ErrNotExist.`
	getNotModified     = `If unless is not empty and is the object's current version, Get must return ErrNotModified and need not transfer the body.`
	getTooLarge        = `If the body is larger than MaxBody, Get must return ErrTooLarge and must not read it all.`
	putWrites          = `Put writes the object if the condition holds, and returns it as written: key, version and times, without the body.`
	putPrecondition    = `If the condition does not hold, Put must return ErrPrecondition and the object must be what it was; where IfMatch names a version and there is no object at all, Put may return ErrNotExist instead.`
	putUnknown         = `If the write may have landed, whatever the reason (the context ended, the connection broke, the store answered 5xx), Put must return ErrUnknownOutcome.`
	putEnded           = `If the context has already ended, Put must send nothing.`
	putRefuses         = `A body over MaxBody must be refused with ErrTooLarge and the zero Condition with ErrInvalid, both before anything is sent.`
	neverTorn          = `A reader must never see a part of a body.`
	deleteRemoves      = `Delete removes the object; that there was none must not be an error.`
	listYields         = `List yields the objects whose keys begin with prefix and come after the key after ("" for all), in ascending byte order of their keys, reading all pages.`
	listShowsAnswered  = `It must show every write that was answered before it began.`
	listStopsEarly     = `Stopping the iteration early must stop the requests.`
	listErrorLast      = `An error is yielded once, as the last element.`
	keysKept           = `CheckKey reports, as an ErrInvalid, why key is not one that every store can keep: it must be valid UTF-8 of 1 to MaxKey bytes without control characters or backslashes, in segments of 1 to 200 bytes divided by single slashes, none of them "." or "..".`
	keysChecked        = `Every store must apply it to the key of every call but List before it sends anything.`
	preconditionIsTrue = `ErrPrecondition: the condition does not hold, and this request changed nothing.`
	putLargeWrites     = `PutLarge writes what r yields until it says io.EOF as the object key, and returns the size in bytes.`
	putLargeWhole      = `A reader of the key must see all of the body or no object.`
	putLargeReader     = `If r fails, PutLarge must return ErrInvalid and the error of r, and nothing must become visible; an error that wraps io.EOF is a failure, not the end.`
	putLargeUnknown    = `If the object may have landed or may yet land, PutLarge must return ErrUnknownOutcome; after any other error there must be no object, nor parts of one that somebody pays for, unless the error says that they stay.`
	putLargeEnded      = `If the context has already ended, PutLarge must send nothing and must not read r.`
	getLargeOpens      = `GetLarge opens the object, whichever way it was written, and returns its size.`
	getLargeNotExist   = `If there is no object, GetLarge must return ErrNotExist.`
	deleteIfRemoves    = `DeleteIf removes the object if it has the version v.`
	deleteIfOther      = `If the object has another version, DeleteIf must return ErrPrecondition and the object must be what it was.`
	deleteIfAbsent     = `If there is no object, DeleteIf must return nil or ErrPrecondition.`
	deleteIfRace       = `Of a DeleteIf and a Put that name the same version, at most one must land.`
	deleteIfUnknown    = `If the deletion may have landed or may yet land, DeleteIf must return ErrUnknownOutcome.`
	deleteIfZero       = `The zero Version must be refused with ErrInvalid before anything is sent.`
	getLargeBreaks     = `A body that breaks off must end in an *Error, as Get would return it, and never in io.EOF.`
)

// The suite's own sentences, from the documentation of Check.
const (
	opens       = "For each, open must give an empty store."
	untilTheEnd = "An empty answer always means that all was checked."
)

var sentences = []string{
	compareAndSwap, readsLatest, landedIsUnknown, versionsDiffer, zeroVersion,
	dateClock, errorsTyped, getReads, getNotExist, getNotModified, getTooLarge,
	putWrites, putPrecondition, putUnknown, putEnded, putRefuses, neverTorn, deleteRemoves,
	listYields, listShowsAnswered, listStopsEarly, listErrorLast, keysKept,
	keysChecked, preconditionIsTrue, putLargeWrites, putLargeWhole, putLargeReader,
	putLargeUnknown, putLargeEnded, getLargeOpens, getLargeNotExist, getLargeBreaks,
	deleteIfRemoves, deleteIfOther, deleteIfAbsent, deleteIfRace, deleteIfUnknown, deleteIfZero,
}
