//go:build !prove

package leasetest

const times = 1
