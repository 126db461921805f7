package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServesPrometheusText(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	said, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, "127.0.0.1:0", out) }()
	line := make([]byte, 100)
	n, err := said.Read(line)
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "metrics: "))
	require.Eventually(t, func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK &&
			strings.Contains(string(text), "ax_tasks_total{") &&
			strings.Contains(string(text), `owner="checkout"`) &&
			strings.Contains(string(text), "ax_attempt_duration_seconds_bucket{") &&
			strings.Contains(string(text), "ax_task_wait_seconds_count{")
	}, 15*time.Second, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
