//go:build !unix

package e2e_test

// becomeHolder: there are no signals to stop a holder with.
func becomeHolder() {}
