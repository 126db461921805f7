package axasynq

import (
	"fmt"
	"io"
	"net/http"

	"github.com/axsched/ax"
)

// MaxResultBody is how much of an answer's body a [Result] keeps, in bytes.
const MaxResultBody = 64 << 10

// Result is the answer to a stored task, as [Handler] leaves it with asynq in JSON:
// the last one that came, also for a task that is retried or given up. Read it with
// json.Unmarshal from asynq.TaskInfo.Result.
type Result struct {
	// Status is the answer's code.
	Status int `json:"status"`
	// Header has what describes the body or names the answer: Content-Type,
	// Content-Encoding, Content-Language, Date, ETag, Last-Modified, Location,
	// Retry-After and X-Request-Id. Cookies and all others are left out.
	Header http.Header `json:"header,omitempty"`
	// Body is the beginning of the body, up to MaxResultBody; base64 in JSON.
	Body []byte `json:"body,omitempty"`
	// Truncated tells that there was more.
	Truncated bool `json:"truncated,omitempty"`
	// Attempts is what the scheduler sent for it, this time.
	Attempts int `json:"attempts"`
	// Source is where it came from, as ax.Source has it: "network", "stale", …
	Source string `json:"source"`
}

// resultOf reads and closes resp.
func resultOf(resp *ax.Response) (*Result, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxResultBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	r := &Result{
		Status: resp.StatusCode, Header: selected(resp.Header), Body: body,
		Attempts: resp.Attempts, Source: resp.Source.String(),
	}
	if len(body) > MaxResultBody {
		r.Body, r.Truncated = body[:MaxResultBody], true
	}
	return r, nil
}

// selected is the part of h that a Result keeps.
func selected(h http.Header) http.Header {
	kept := http.Header{}
	for _, name := range [...]string{
		"Content-Type", "Content-Encoding", "Content-Language", "Date", "Etag", "Last-Modified",
		"Location", "Retry-After", "X-Request-Id",
	} {
		if values := h.Values(name); len(values) > 0 {
			kept[name] = values
		}
	}
	return kept
}
