package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/gofrs/flock"
)

// errExited: the server ended before it answered, as it does when its port is taken.
var errExited = errors.New("the server exited before it answered")

const accessKey, secretKey = "leasehold", "leasehold-secret"

// pinned has the servers in the module pinned and in those below it.
var pinned = map[string]recipe{
	"gofakes3": {
		args: func(addr, _ string) []string { return []string{"-quiet", "-host", addr, "-backend", "memory"} },
	},
	"versitygw": {
		args: func(addr, dir string) []string {
			// Without --keep-alive, every request opens a connection.
			return []string{
				"--access", accessKey, "--secret", secretKey, "--port", addr,
				"--keep-alive", "--quiet", "posix", dir,
			}
		},
	},
	"minio": {
		args: func(addr, dir string) []string { return []string{"server", "--quiet", "--address", addr, dir} },
		env: []string{
			"MINIO_ROOT_USER=" + accessKey, "MINIO_ROOT_PASSWORD=" + secretKey,
			"MINIO_UPDATE=off", "MINIO_BROWSER=off",
		},
	},
	GCS: {
		module: "gcs",
		args: func(addr, _ string) []string {
			host, number, _ := net.SplitHostPort(addr)
			return []string{
				"-scheme", "http", "-host", host, "-port", number, "-public-host", addr,
				"-backend", "memory", "-log-level", "error",
			}
		},
	},
}

// A recipe says how to run a pinned server.
type recipe struct {
	module string // the module's directory in pinned; "": pinned itself
	args   func(addr, dir string) []string
	env    []string
}

func (r recipe) command(path, addr, dir string) command {
	return command{path: path, args: r.args(addr, dir), env: r.env}
}

// A command can be started any number of times.
type command struct {
	path string
	args []string
	env  []string // the whole environment
}

func (c command) start(out *tail) (*process, error) {
	cmd := exec.Command(c.path, c.args...) //nolint:noctx // it ends by kill, which also waits
	cmd.Env = c.env
	cmd.Stdout, cmd.Stderr = out, out
	if err := startTied(cmd); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ended returns the result
		close(p.done)
	}()
	return p, nil
}

// A process is one run of a command.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) ended() string { return p.cmd.ProcessState.String() }

// kill ends the process, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means it has ended already
	<-p.done
}

// A port is a loopback port that no other test process uses.
type port struct {
	addr string // 127.0.0.1:PORT
	lock *flock.Flock
}

// freePort finds a port without a listener. Another test process's server could bind it a
// moment later and answer instead of ours, unnoticed. So each port has a lock, held as long as
// the port. The ports are below the range for outgoing connections, so that a server can
// restart on its port.
func freePort() (*port, error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	const first, count = 21000, 1000
	for _, n := range rand.Perm(count) {
		number := strconv.Itoa(first + n)
		p := &port{addr: net.JoinHostPort("127.0.0.1", number), lock: flock.New(filepath.Join(dir, "port-"+number+".lock"))}
		mine, err := p.lock.TryLock()
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if !mine {
			continue
		}
		ln, err := net.Listen("tcp", p.addr) //nolint:noctx // it does not block
		if err != nil {
			p.free()
			continue
		}
		_ = ln.Close()
		return p, nil
	}
	return nil, fmt.Errorf("find a free port: all of %d to %d are taken", first, first+count-1)
}

func (p *port) split() (host, number string) {
	host, number, _ = net.SplitHostPort(p.addr)
	return host, number
}

func (p *port) free() { _ = p.lock.Close() }

// A tail keeps the last part of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
