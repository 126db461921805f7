package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisAddr is AX_REDIS_ADDR, or that of a redis-server started here, which stop
// ends.
func redisAddr(ctx context.Context) (addr string, stop func(), err error) {
	if addr := os.Getenv("AX_REDIS_ADDR"); addr != "" {
		if err := answers(ctx, addr, 2*time.Second); err != nil {
			return "", nil, fmt.Errorf("no Redis answers at AX_REDIS_ADDR, %s: %w", addr, err)
		}
		return addr, func() {}, nil
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, fmt.Errorf("install redis-server or set AX_REDIS_ADDR: %w", err)
	}
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return "", nil, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	if err := answers(ctx, addr, 10*time.Second); err != nil {
		stop()
		return "", nil, err
	}
	return addr, stop, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// answers waits until the server at addr does, for at most d.
func answers(ctx context.Context, addr string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
