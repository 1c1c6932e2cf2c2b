package s3store

import "testing"

// S3 takes objects of 5 TiB, in parts of 5 MiB to 5 GiB.
func TestPartsReach5TiB(t *testing.T) {
	const mib = 1 << 20
	var sum int64
	for n := range maxParts {
		size := partSize(n)
		if size < 5*mib || size > 5<<30 || n > 0 && size < partSize(n-1) {
			t.Fatalf("part %d has %d bytes", n, size)
		}
		sum += size
	}
	if sum < 5<<40 {
		t.Errorf("%d parts are %d bytes, less than 5 TiB", maxParts, sum)
	}
	if partSize(999) != partSize(0) {
		t.Errorf("the parts grow within the first 7.8 GiB")
	}
}
