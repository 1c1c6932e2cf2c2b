package handler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	leasetusd "github.com/leasehold/leasehold/adapter/tusd"
	"github.com/leasehold/leasehold/store/memstore"
)

// ours is a locker of this adapter. When the test ends all of its locks must be free.
func ours(t testing.TB) handler.Locker {
	locker, err := leasetusd.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("an upload is still locked: %v", err)
		}
	})
	return locker
}

// behind locks an upload by the mock that a test wants to be asked, and by this adapter.
func behind(t any, id string, mock any) handler.Lock {
	lock, err := ours(t.(testing.TB)).NewLock(id)
	if err != nil {
		panic(err)
	}
	return both{mock.(handler.Lock), lock}
}

type both struct{ mock, ours handler.Lock }

func (b both) Lock(ctx context.Context, requestUnlock func()) error {
	if err := b.mock.Lock(ctx, requestUnlock); err != nil {
		return err
	}
	return b.ours.Lock(ctx, requestUnlock)
}

func (b both) Unlock() error { return errors.Join(b.ours.Unlock(), b.mock.Unlock()) }
