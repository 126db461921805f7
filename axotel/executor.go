package axotel

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/trace"
)

// executor has each attempt run under its span.
type executor struct {
	o    *observer
	next ax.Executor
}

// errAborted stands for a panic or Goexit of the executor below.
var errAborted = errors.New("axotel: the executor did not return")

// Execute makes one attempt. The span ends with the body.
func (x *executor) Execute(ctx context.Context, t *ax.Task) (*http.Response, error) {
	a := x.o.claim(ctx, t)
	returned := false
	defer func() {
		if !returned {
			a.end(0, errAborted)
		}
	}()
	resp, err := x.next.Execute(&attemptContext{Context: ctx, values: trace.ContextWithSpan(ctx, a.span), of: a}, t)
	returned = true
	switch {
	case err != nil:
		a.end(0, err)
	case resp == nil:
		a.end(0, nil)
	case resp.Body == nil || resp.Body == http.NoBody:
		a.end(resp.StatusCode, nil)
	default:
		resp.Body = newBody(resp.Body, func(err error) { a.end(resp.StatusCode, err) })
	}
	return resp, err
}

// body tells when it has been read to its end, or closed.
type body struct {
	io.ReadCloser
	end func(error) // may be called often
}

// upgradedBody is the body of a 101: the connection itself.
type upgradedBody struct{ body }

func newBody(rc io.ReadCloser, end func(error)) io.ReadCloser {
	b := body{rc, end}
	if _, ok := rc.(io.Writer); ok {
		return &upgradedBody{b}
	}
	return &b
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end(nil)
	case err != nil:
		b.end(err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}

// Read does not end the span at EOF: only one of two directions has ended.
func (b *upgradedBody) Read(p []byte) (int, error) { return b.ReadCloser.Read(p) }

// Write writes to the connection.
func (b *upgradedBody) Write(p []byte) (int, error) { return b.ReadCloser.(io.Writer).Write(p) }

// CloseWrite closes the sending direction, if the connection can do that.
func (b *upgradedBody) CloseWrite() error {
	if w, ok := b.ReadCloser.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
