package filestore

import "syscall"

// hasACL reports whether a directory has a POSIX access control list.
func hasACL(dir string) bool {
	_, err := syscall.Getxattr(dir, "system.posix_acl_access", nil)
	return err == nil
}
