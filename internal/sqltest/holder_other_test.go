//go:build !unix

package sqltest_test

// becomeHolder: there are no signals to stop a holder with.
func becomeHolder() {}
