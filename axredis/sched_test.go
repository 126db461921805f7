package axredis_test

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/stretchr/testify/require"
)

// scheduler is one of lane "api" under g.
func (f *fleet) scheduler(g *axredis.Governor, e ax.Executor) *ax.Scheduler {
	return f.schedulerWith(ax.Config{Governor: g, Executor: e})
}

func (f *fleet) schedulerWith(cfg ax.Config) *ax.Scheduler {
	f.t.Helper()
	if cfg.Lanes == nil {
		cfg.Lanes = []ax.Lane{{Name: "api"}}
	}
	s, err := ax.New(nil, cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, s.Close()) })
	return s
}

// answer is an executor that always answers the same.
func answer(status int, header, value string) func(context.Context, *ax.Task) (*http.Response, error) {
	return func(context.Context, *ax.Task) (*http.Response, error) {
		h := http.Header{}
		if header != "" {
			h.Set(header, value)
		}
		return &http.Response{StatusCode: status, Header: h}, nil
	}
}

// recorder is an executor that notes the paths it is given and takes a while.
func recorder(mu *sync.Mutex, order *[]string, took time.Duration) func(context.Context, *ax.Task) (*http.Response, error) {
	return func(ctx context.Context, t *ax.Task) (*http.Response, error) {
		req, err := t.NewRequest(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		*order = append(*order, req.URL.Path)
		mu.Unlock()
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return &http.Response{StatusCode: http.StatusOK}, nil
	}
}
