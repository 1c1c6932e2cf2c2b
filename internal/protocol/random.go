package protocol

import "time"

// random is a splitmix64 generator. It is the only chance there is in a candidate, and it is
// seeded by the incarnation, so that the same events give the same actions.
//
// The generator is that of Steele, Lea and Flood (2014): one word of state, which a Saved can keep
// for each of very many leases, and good enough to keep candidates apart. Nothing secret is made of
// it: an incarnation comes from the driver.
type random uint64

// seeded gives a generator for an incarnation, by FNV-1a.
func seeded(incarnation string) random {
	r := random(0xcbf29ce484222325)
	for _, b := range []byte(incarnation) {
		r = (r ^ random(b)) * 0x100000001b3
	}
	return r
}

// jitter gives a time from 0 up to d.
func (r *random) jitter(d time.Duration) time.Duration {
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

// spread gives a time from 0 to d for one of many that would otherwise act at the
// same moment. Most are late and few are early (the largest of four draws), so
// that the others can see that the first has acted, however many there are.
func (r *random) spread(d time.Duration) time.Duration {
	return max(r.jitter(d), r.jitter(d), r.jitter(d), r.jitter(d))
}

// vary changes a pause by up to a quarter, so that followers do not look in step.
func (r *random) vary(d time.Duration) time.Duration { return d*3/4 + r.jitter(d/2) }
