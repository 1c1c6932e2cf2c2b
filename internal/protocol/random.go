package protocol

import "time"

// Random is the only source of chance in a machine. It is seeded by the incarnation, so the same
// events give the same actions.
//
// It is splitmix64, by Steele, Lea and Flood (2014): one word of state, which a Saved keeps for
// each of many leases. It keeps candidates apart and is not for secrets: incarnations come from the
// driver.
type Random uint64

// Seeded returns the generator of an incarnation, by FNV-1a.
func Seeded(incarnation string) Random {
	r := Random(0xcbf29ce484222325)
	for _, b := range []byte(incarnation) {
		r = (r ^ Random(b)) * 0x100000001b3
	}
	return r
}

// Jitter returns a time from 0 up to d.
func (r *Random) Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return time.Duration(z % uint64(d))
}

// Spread returns a time from 0 to d for one of many that would otherwise act at the same moment. It
// is the largest of four draws, so most are late and few are early, and the others can see that the
// first has acted, however many there are.
func (r *Random) Spread(d time.Duration) time.Duration {
	return max(r.Jitter(d), r.Jitter(d), r.Jitter(d), r.Jitter(d))
}

// Vary changes a pause by up to a quarter, so that followers do not poll in step.
func (r *Random) Vary(d time.Duration) time.Duration { return d*3/4 + r.Jitter(d/2) }
