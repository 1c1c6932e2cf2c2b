//go:build prove && !race

package semaphore_test

const many = 100
