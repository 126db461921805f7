package axdebug

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func instant(_ context.Context, _ *ax.Task) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// BenchmarkEvent is what one event costs its task while somebody looks.
func BenchmarkEvent(b *testing.B) {
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(instant)})
	require.NoError(b, err)
	defer s.Close()
	r := newRecorder(s, true)
	e := ax.Event{
		Kind: ax.EventStarted, Time: time.Now(), Context: b.Context(), Seq: 1, Lane: "api.example",
		Task: ax.Must(ax.Request{URL: "https://api.example/items/17?lang=en"}.Task()),
	}
	b.ReportAllocs()
	for b.Loop() {
		r.event(e)
	}
}

// BenchmarkPage is what one look at a page of ten thousand lanes costs.
func BenchmarkPage(b *testing.B) {
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(instant)})
	require.NoError(b, err)
	defer s.Close()
	h := HandlerWith(s, Options{Record: true}).(*handler)
	for i := range 10_000 {
		_, err := s.Get(b.Context(), fmt.Sprintf("https://h%d.example/", i))
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, h.pages.content(io.Discard, h.view(filter{})))
	}
}
