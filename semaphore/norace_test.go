//go:build !race

package semaphore_test

const many = 100
