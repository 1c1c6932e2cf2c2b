package filestore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// The test binary is also the program of the processes that the tests start:
// this variable says what one of them does.
const roleVar = "FILESTORE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

// roles are those of one system only.
var roles = map[string]func(ctx context.Context, st *filestore.Store, dir string, args []string) error{}

func play(role, dir string, args []string) error {
	st, err := filestore.New(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	switch role {
	case "count": // name, times: a line for each increment that landed
		times, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		for range times {
			if err := count(ctx, st, args[0]); err != nil {
				return err
			}
			fmt.Println("landed")
		}
		return nil
	case "read": // until stdin ends: a line with the number of reads
		return readUntilEnd(ctx, st)
	case "put": // key, body
		_, err := st.Put(ctx, args[0], []byte(args[1]), store.IfAbsent())
		return err
	}
	if act, ok := roles[role]; ok {
		return act(ctx, st, dir, args)
	}
	return fmt.Errorf("no such role")
}

// A ledger is an object that shows by itself whether a reader sees all of it.
type ledger struct {
	Count int
	By    map[string]int // increments by name; they add up to Count
	Pad   string         // a digit of Count, again and again: a length and content of its own
}

const ledgerKey = "shared/ledger"

func (l ledger) encode() []byte {
	if l.By == nil {
		l.By = make(map[string]int)
	}
	l.Pad = strings.Repeat(strconv.Itoa(l.Count%10), 1+(l.Count%37)<<10)
	body, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return body
}

func decode(body []byte) (ledger, error) {
	var l ledger
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fmt.Errorf("torn: %w", err)
	}
	sum := 0
	for _, n := range l.By {
		sum += n
	}
	if sum != l.Count || !bytes.Equal(l.encode(), body) {
		return l, fmt.Errorf("torn: the count is %d, the sum %d, the padding %d bytes", l.Count, sum, len(l.Pad))
	}
	return l, nil
}

// count adds one to the ledger under name.
func count(ctx context.Context, st *filestore.Store, name string) error {
	for {
		o, err := st.Get(ctx, ledgerKey, "")
		if err != nil {
			return err
		}
		l, err := decode(o.Body)
		if err != nil {
			return err
		}
		l.Count++
		l.By[name]++
		_, err = st.Put(ctx, ledgerKey, l.encode(), store.IfMatch(o.Version))
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
}

func readUntilEnd(ctx context.Context, st *filestore.Store) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	highest := 0
	for reads := 1; ; reads++ {
		o, err := st.Get(ctx, ledgerKey, "")
		if err != nil {
			return err
		}
		l, err := decode(o.Body)
		if err != nil {
			return err
		}
		if l.Count < highest {
			return fmt.Errorf("the count went from %d back to %d", highest, l.Count)
		}
		highest = l.Count
		select {
		case <-ended:
			fmt.Println(reads)
			return nil
		default:
		}
	}
}
