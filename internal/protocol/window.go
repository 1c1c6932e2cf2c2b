package protocol

// MaxWindow is the largest Window. At 150 ms for each request it is 4,000 a second, and S3 serves 3,500
// writes of one prefix.
const MaxWindow = 640

// A Window bounds how many of a crowd of requests are under way at a time, by how many the store
// takes: it grows while they succeed, and shrinks when one fails. It is what TCP does with what it has on
// its way, since nobody can say beforehand what a store serves, and who else asks it. It is not safe for
// concurrent use.
type Window struct {
	first  float64 // how many may be under way at first
	size   float64 // and now
	begun  int     // so far
	ended  int
	shrunk int // so many had begun when it last shrank; 0: it has not
}

// NewWindow makes one that begins with that many.
func NewWindow(first int) *Window { return &Window{first: float64(first), size: float64(first)} }

// Begin reports that one more may begin, and which it is.
func (w *Window) Begin() (number int, ok bool) {
	if w.begun-w.ended >= int(w.size) {
		return 0, false
	}
	w.begun++
	return w.begun, true
}

// End takes in that the one with that number has ended. failed: the store has asked for fewer, or
// has not answered.
func (w *Window) End(number int, failed bool) {
	w.ended++
	switch {
	// What was under way when it shrank says nothing of how it does since.
	case failed && number <= w.shrunk:
	case failed:
		w.size, w.shrunk = max(w.size/2, 1), w.begun
	// Nobody knows yet how many are too many: twice as many in each round find that out soon.
	case w.shrunk == 0:
		w.size++
	// It is near that: so many more in each round as it began with.
	default:
		w.size += w.first / w.size
	}
	w.size = min(w.size, MaxWindow)
}
