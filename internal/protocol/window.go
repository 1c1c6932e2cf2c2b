package protocol

// MaxWindow is the largest Window. At 150 ms per request, it allows 4,000 requests a second,
// and S3 serves 3,500 writes a second for one prefix.
const MaxWindow = 640

// A Window bounds how many requests of a batch are in flight, by how many the store takes. It
// grows while they succeed, and shrinks when one fails, as TCP's does, because nobody knows in
// advance what a store serves and who else uses it. It is not safe for concurrent use.
type Window struct {
	first  float64 // how many may be in flight at first
	size   float64 // and now
	begun  int     // so far
	ended  int
	shrunk int // how many had begun when it last shrank; 0: it has not
}

// NewWindow returns a Window that starts with first requests.
func NewWindow(first int) *Window { return &Window{first: float64(first), size: float64(first)} }

// Begin reports whether one more request may begin, and returns its number.
func (w *Window) Begin() (number int, ok bool) {
	if w.begun-w.ended >= int(w.size) {
		return 0, false
	}
	w.begun++
	return w.begun, true
}

// End notes the end of a request. failed: the store asked for fewer requests, or did not
// answer.
func (w *Window) End(number int, failed bool) {
	w.ended++
	switch {
	// Requests already in flight when it shrank show nothing about the new size.
	case failed && number <= w.shrunk:
	case failed:
		w.size, w.shrunk = max(w.size/2, 1), w.begun
	// The limit is unknown yet: doubling in each round finds it soon.
	case w.shrunk == 0:
		w.size++
	// It is near the limit: each round adds as many as it started with.
	default:
		w.size += w.first / w.size
	}
	w.size = min(w.size, MaxWindow)
}
