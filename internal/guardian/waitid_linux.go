package guardian

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	wordSize  = int(unsafe.Sizeof(uintptr(0)))
	cldExited = 1 // otherwise it was killed
)

// A siginfo is the kernel's siginfo_t as waitid fills it.
type siginfo struct {
	signo, errno, code int32
	_                  [wordSize/4 - 1]int32
	pid                int32
	uid                uint32
	status             int32
	_                  [96]byte
}

// waitid never waits. A pid of 0 means there was nothing to report.
func waitid(kind, id, what int) (info siginfo, err error) {
	err = unix.Waitid(kind, id, (*unix.Siginfo)(unsafe.Pointer(&info)), what|unix.WNOHANG, nil)
	return info, err
}
