package filestore

import "syscall"

// hasACL reports that a directory has an access control list of POSIX.
func hasACL(dir string) bool {
	_, err := syscall.Getxattr(dir, "system.posix_acl_access", nil)
	return err == nil
}
