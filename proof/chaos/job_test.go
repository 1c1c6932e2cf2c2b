package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// The environment variables that make this binary a job: the socket of the checker,
// the number of the worker, and how long the job lasts.
const (
	jobVariable    = "CHAOS_JOB"
	workerVariable = "CHAOS_WORKER"
	lastsVariable  = "CHAOS_LASTS"
)

// refusedCode is the exit code of a job whose token was refused.
const refusedCode = 3

// theLock is the lock that all jobs work under, and tenants too.
const theLock = "lock"

// job works under the lock: every 20 ms it tells the checker so. One job in two does
// not care to be asked to end, and has to be killed.
func job(socket string) (code int, err error) {
	token, err := strconv.ParseInt(os.Getenv("LEASEHOLD_TOKEN"), 10, 64)
	if err != nil {
		return 1, fmt.Errorf("a job without a token: %w", err)
	}
	worker, err := strconv.Atoi(os.Getenv(workerVariable))
	if err != nil {
		return 1, err
	}
	lasts, err := time.ParseDuration(os.Getenv(lastsVariable))
	if err != nil {
		return 1, err
	}
	if rand.N(2) == 1 { // not by its token: who takes turns with another has every second one
		signal.Ignore(syscall.SIGTERM)
	}
	// The path leads out of the network namespace: no partition parts it from the checker.
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return 1, err
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	w := word{Worker: worker, PID: os.Getpid(), Guardian: os.Getppid(), Watcher: parent(os.Getppid()), Lock: theLock, Token: token}
	// The end comes after a word: who was stopped in between speaks when it wakes up.
	for end := clock.Now() + lasts; ; time.Sleep(20 * time.Millisecond) {
		w.At = clock.Now()
		if err := out.Encode(w); err != nil {
			return 1, err
		}
		var good bool
		if err := in.Decode(&good); err != nil {
			return 1, err
		}
		if !good {
			return refusedCode, nil
		}
		if w.At > end {
			return 0, nil
		}
	}
}

// parent is the process that started another; 0 if there is no /proc to tell.
func parent(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	_, rest, _ = strings.Cut(rest, " ")
	first, _, _ := strings.Cut(rest, " ")
	ppid, _ := strconv.Atoi(first)
	return ppid
}
