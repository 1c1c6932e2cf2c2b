package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// openRedis gives mutexes of redsync on one Redis server, which writes nothing to its disk
// or writes each command there before it answers.
func openRedis(durable bool) func(context.Context, *bench, *place, time.Duration) (candidate, error) {
	server := &daemon{
		command: func(ctx context.Context, at site) ([]string, error) {
			path, err := program(ctx, "redis-server", "/usr/bin/redis-server", "redis-server")
			args := []string{path, "--bind", "127.0.0.1", "--port", at.port, "--dir", at.dir, "--save", ""}
			if durable {
				args = append(args, "--appendonly", "yes", "--appendfsync", "always")
			}
			return args, err
		},
		answers: func(ctx context.Context, addr string) error {
			c := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = c.Close() }()
			return c.Ping(ctx).Err()
		},
	}
	return func(_ context.Context, b *bench, _ *place, ttl time.Duration) (candidate, error) {
		addr, err := server.addr(b.host)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(&redis.Options{Addr: addr})
		return &redisLocks{newKeeper(ttl / 3), ttl, client, redsync.New(goredis.NewPool(client))}, nil
	}
}

type redisLocks struct {
	keeper
	ttl    time.Duration
	client *redis.Client
	sync   *redsync.Redsync
}

// acquire waits with redsync's own pauses, of 50 to 250 ms. It gives up after 32 tries, and
// its documentation says to call it again.
func (r *redisLocks) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	m := r.mutex(name)
	for {
		err := m.LockContext(ctx)
		if _, taken := errors.AsType[*redsync.ErrTaken](err); !taken || ctx.Err() != nil {
			return r.granted(m, err)
		}
	}
}

func (r *redisLocks) try(ctx context.Context, name string) (func(context.Context) error, error) {
	m := r.mutex(name)
	err := m.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
		return nil, errHeld
	}
	return r.granted(m, err)
}

func (r *redisLocks) mutex(name string) *redisMutex {
	return &redisMutex{r.sync.NewMutex(name, redsync.WithExpiry(r.ttl))}
}

func (r *redisLocks) granted(m *redisMutex, err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return r.keep(m), nil
}

func (r *redisLocks) close() {
	r.end()
	_ = r.client.Close()
}

type redisMutex struct{ *redsync.Mutex }

func (m *redisMutex) renew(ctx context.Context) error {
	_, err := m.ExtendContext(ctx)
	return err
}

func (m *redisMutex) release(ctx context.Context) error {
	_, err := m.UnlockContext(ctx)
	return err
}
