//go:build !linux && !windows

package filestore

// hasACL returns false: access control lists of other systems do not change the mode.
func hasACL(string) bool { return false }
