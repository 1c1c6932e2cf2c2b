package leasetest

// Seeds is how many seeds a test at random runs: n, and twenty times as many with the build tag prove.
func Seeds(n int) uint64 { return uint64(n) * times }
