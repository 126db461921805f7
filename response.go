package ax

import (
	"net/http"
	"time"
)

// Source tells where a Response came from.
type Source int

// Sources.
const (
	FromNetwork Source = iota
	FromFlight
	FromWindow
	FromAlternate
	FromStale
	FromStatic
)

// Response is the answer to a task.
type Response struct {
	*http.Response
	Source   Source
	Attempts int
	Waited   time.Duration
	Age      time.Duration
	Seq      uint64
	Cause    error
}

func (r *Response) Bytes() ([]byte, error)          { panic("skeleton") }
func JSON[T any](r *Response, err error) (T, error) { panic("skeleton") }
