//go:build prove && race

package semaphore_test

// many is how many wait in a test of a long queue: with the race detector less than without.
const many = 20
