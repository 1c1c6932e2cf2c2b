//go:build !unix

package sql_test

// becomeHolder: there are no signals to stop a holder with.
func becomeHolder() {}
