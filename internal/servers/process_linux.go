package servers

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopped waits until a stop has reached all threads of the child, which takes a while
// where there is much to do.
func stopped(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// startTied starts the process so that the kernel kills it when the test
// process dies, however it dies.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// starter gives the queue of a goroutine that never ends and never leaves its
// thread. The kernel sends the signal when the *thread* that started the child
// ends, and the Go runtime may end any thread that is not so held.
var starter = sync.OnceValue(func() chan<- func() {
	queue := make(chan func())
	go keepThread(queue)
	return queue
})

// keepThread has a name by which tests that look for goroutines that were left can tell it.
func keepThread(queue <-chan func()) {
	runtime.LockOSThread()
	for f := range queue {
		f()
	}
}
