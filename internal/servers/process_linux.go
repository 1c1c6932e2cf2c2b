package servers

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopped waits until all threads of the child have stopped, which can take a while on a busy
// machine.
func stopped(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// startTied starts the process so that the kernel kills it when the test process dies, for
// whatever reason.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// starter returns the queue of a goroutine that never ends or leaves its thread. The kernel
// sends the signal when the *thread* that started the child ends, and the Go runtime may end
// any other thread.
var starter = sync.OnceValue(func() chan<- func() {
	queue := make(chan func())
	go keepThread(queue)
	return queue
})

// keepThread has a name, so that tests for leaked goroutines can recognize it.
func keepThread(queue <-chan func()) {
	runtime.LockOSThread()
	for f := range queue {
		f()
	}
}
