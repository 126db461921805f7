package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTheStoryIsTrue: what the program says keeps to the limits that it names.
func TestTheStoryIsTrue(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("AX_REDIS_ADDR") == "" {
		t.Skip("REDIS-UNAVAILABLE: set AX_REDIS_ADDR or install redis-server")
	}
	var out bytes.Buffer
	var broken []string
	promise := func(kept bool, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		fmt.Fprintln(&out, " ", text)
		if !kept {
			broken = append(broken, text)
		}
	}
	for range 3 { // a machine without time measures itself
		out.Reset()
		broken = nil
		require.NoError(t, run(t.Context(), &out, promise, 3*time.Second), out.String())
		t.Log("\n" + out.String())
		require.LessOrEqual(t, number(t, out.String(), `peak concurrency +(\d+) of 10`), 10.0)
		if len(broken) == 0 {
			break
		}
	}
	require.Empty(t, broken)
	require.LessOrEqual(t, number(t, out.String(), `peak per second +(\d+) of 50`), 50.0)
	require.GreaterOrEqual(t, number(t, out.String(), `rate used +(\d+) %`), 85.0)
	served := regexp.MustCompile(`served: (.*)`).FindStringSubmatch(out.String())[1]
	var order []string
	for _, s := range strings.Fields(served) {
		what, _, _ := strings.Cut(s, "@")
		order = append(order, what)
	}
	require.Equal(t, strings.Fields(strings.Repeat("urgent ", 4)+strings.Repeat("normal ", 4)+strings.Repeat("low ", 4)), order)
	require.Contains(t, out.String(), "after 2s: 0 requests of w2")
	for _, slot := range []string{"1", "2", "3", "4"} {
		back := number(t, out.String(), `slot `+slot+` is back after ([\d.]+)s`)
		require.LessOrEqual(t, back, 2.5)
		require.GreaterOrEqual(t, back, 1.2, "a third of the lease may have passed when its holder died")
	}
}

func TestAWrongAddressOfRedisIsAnError(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	t.Setenv("AX_REDIS_ADDR", "127.0.0.1:"+port)
	var out bytes.Buffer
	err = run(t.Context(), &out, func(bool, string, ...any) {}, time.Second)
	require.ErrorContains(t, err, "no Redis answers at AX_REDIS_ADDR, 127.0.0.1:"+port)
	require.Empty(t, out.String(), "no story")
}

func number(t *testing.T, text, pattern string) float64 {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s in:\n%s", pattern, text)
	n, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return n
}
