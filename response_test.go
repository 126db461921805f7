package ax

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSourceString(t *testing.T) {
	for s, want := range map[Source]string{
		FromNetwork: "network", FromFlight: "flight", FromWindow: "window",
		FromAlternate: "alternate", FromStale: "stale", FromStatic: "static", 17: "Source(17)",
	} {
		require.Equal(t, want, s.String())
	}
}

func TestCaseH04EveryCallerHasItsOwnAnswer(t *testing.T) {
	c, address, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/big", http.StatusFound)
			return
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header()["Via"] = []string{"a", "b"}
		_, _ = w.Write(pattern(1 << 20))
		w.Header().Set("X-Sum", "42")
	})
	resp := getVia(t, t.Context(), c, address)
	body, whole, err := buffer(resp, 4<<20, 0)
	require.NoError(t, err)
	require.True(t, whole)
	p := &payload{resp: resp, body: body}
	wantHeader, wantRequest := resp.Header.Clone(), resp.Request.Header.Clone()

	var wg sync.WaitGroup
	use := []func(r *Response){
		func(r *Response) { // a vandal
			b, _ := r.Bytes()
			clear(b)
			clear(r.Header)
			clear(r.Trailer)
			r.Request.Header.Set("Referer", "vandal")
			r.Request.URL.Host = "vandal"
			r.Request.Response.Header.Set("Location", "vandal")
		},
		func(r *Response) { r.Body.Close() },
		func(r *Response) {
			p := make([]byte, 1)
			for range 100 {
				_, _ = r.Body.Read(p)
				p[0] = 0
				time.Sleep(time.Microsecond)
			}
		},
	}
	for i := range 8 {
		r := &Response{Response: p.response(true, context.Background())}
		wg.Go(func() {
			if i < len(use) {
				use[i](r)
				return
			}
			for range 50 {
				_ = r.Header.Get("Via")
				_ = r.Request.Header.Get("Referer")
			}
			got, err := io.ReadAll(iotest.HalfReader(r.Body))
			if err != nil || !bytes.Equal(got, pattern(1<<20)) {
				t.Error("not what the server sent", err)
			}
		})
	}
	wg.Wait()
	r := p.response(true, context.Background())
	require.Equal(t, wantHeader, r.Header)
	require.Equal(t, http.Header{"X-Sum": {"42"}}, r.Trailer)
	require.Equal(t, wantRequest, r.Request.Header)
	require.Equal(t, "/big", r.Request.Response.Header.Get("Location"))
	require.Equal(t, resp.Request.URL.String(), r.Request.URL.String())
	require.Equal(t, "200 OK", r.Status)
	require.Equal(t, "HTTP/1.1", r.Proto)
	require.EqualValues(t, -1, r.ContentLength)
}

func TestPayloadKeepsWhatItDoesNotCopy(t *testing.T) {
	state := &tls.ConnectionState{ServerName: "a.test"}
	for _, shared := range []bool{true, false} {
		from := &http.Response{
			Status: "299 Odd", StatusCode: 299, Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: 5,
			TransferEncoding: []string{"x"}, Uncompressed: true, TLS: state, Header: http.Header{},
		}
		p := &payload{resp: from, body: []byte("hello")}
		r := p.response(shared, context.Background())
		require.Equal(t, shared, r != from)
		require.Equal(t, "299 Odd", r.Status)
		require.Equal(t, 2, r.ProtoMajor)
		require.EqualValues(t, 5, r.ContentLength)
		require.Equal(t, []string{"x"}, r.TransferEncoding)
		require.True(t, r.Uncompressed)
		require.Same(t, state, r.TLS)
		require.Nil(t, r.Request)
		require.NotNil(t, r.Header)
		require.NotNil(t, r.Body)
	}
}

func TestPayloadWithoutHeader(t *testing.T) {
	r := (&payload{resp: &http.Response{}}).response(true, context.Background())
	r.Header.Set("X", "y") // not nil
	b, err := (&Response{Response: r}).Bytes()
	require.NoError(t, err)
	require.Empty(t, b)
}

func buffered(status int, body string, shared bool) *Response {
	p := &payload{resp: &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}}, body: []byte(body)}
	return &Response{Response: p.response(shared, context.Background())}
}

func streamed(status int, body io.Reader) (*Response, *knownBody) {
	resp, b := bodyAnswer(status, -1, body)
	return &Response{Response: resp}, b
}

func TestBytesBuffered(t *testing.T) {
	for _, shared := range []bool{true, false} {
		r := buffered(200, "hello world", shared)
		_, err := io.ReadFull(r.Body, make([]byte, 6))
		require.NoError(t, err)
		b, err := r.Bytes()
		require.NoError(t, err)
		require.Equal(t, "hello world", string(b), "from the start")
		rest, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, "world", string(rest), "Body goes on where it was")
		require.NoError(t, r.Body.Close())
		_, err = r.Body.Read(b)
		require.Equal(t, http.ErrBodyReadAfterClose, err)
		again, err := r.Bytes()
		require.NoError(t, err)
		require.Same(t, &b[0], &again[0])
	}
}

func TestBytesCopiesOnlyWhatIsShared(t *testing.T) {
	p := &payload{resp: &http.Response{}, body: []byte("hello")}
	b, _ := (&Response{Response: p.response(true, context.Background())}).Bytes()
	require.NotSame(t, &p.body[0], &b[0])
	b, _ = (&Response{Response: p.response(false, context.Background())}).Bytes()
	require.Same(t, &p.body[0], &b[0])
}

func TestBytesStreamed(t *testing.T) {
	r, body := streamed(200, strings.NewReader("hello world"))
	_, err := io.ReadFull(r.Body, make([]byte, 6))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if b, err := r.Bytes(); err != nil || string(b) != "world" {
				t.Error(string(b), err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, body.closed.Load())
}

func TestBytesRemembersAnError(t *testing.T) {
	r, _ := streamed(200, io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(errTorn)))
	for range 2 {
		b, err := r.Bytes()
		require.Equal(t, errTorn, err)
		require.Equal(t, "hel", string(b))
	}
}

func TestBytesOfNothing(t *testing.T) {
	for _, r := range []*Response{nil, {}} {
		_, err := r.Bytes()
		require.Equal(t, errNilResponse, err)
	}
	b, err := (&Response{Response: &http.Response{}}).Bytes()
	require.NoError(t, err)
	require.Equal(t, []byte{}, b)
}

type person struct {
	Name string    `json:"name"`
	Age  int       `json:"age"`
	Born time.Time `json:"born"`
}

func TestJSON(t *testing.T) {
	for _, shared := range []bool{true, false} {
		r := buffered(201, `{"name":"Ann","age":7}`, shared)
		u, err := JSON[person](r, nil)
		require.NoError(t, err)
		require.Equal(t, person{Name: "Ann", Age: 7}, u)
		_, err = r.Body.Read(make([]byte, 1))
		require.Equal(t, http.ErrBodyReadAfterClose, err)
	}
	r, body := streamed(200, strings.NewReader(`[1,2]`))
	v, err := JSON[[]int](r, nil)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, v)
	require.NotZero(t, body.closed.Load())
}

func TestJSONOfNothing(t *testing.T) {
	for _, status := range []int{204, 205} {
		v, err := JSON[*person](buffered(status, "", false), nil)
		require.NoError(t, err)
		require.Nil(t, v)
	}
	head := buffered(200, "", false)
	head.Request = &http.Request{Method: "HEAD"}
	_, err := JSON[person](head, nil)
	require.NoError(t, err)

	_, err = JSON[person](buffered(200, "", false), nil)
	require.EqualError(t, err, "ax: body for ax.person is not JSON at byte 0")
	for _, r := range []*Response{nil, {}} {
		_, err = JSON[person](r, nil)
		require.Equal(t, errNilResponse, err)
		_, err = JSON[person](r, errTorn)
		require.Equal(t, errTorn, err)
	}
	r, body := streamed(200, strings.NewReader("{}"))
	_, err = JSON[person](r, errTorn)
	require.Equal(t, errTorn, err)
	require.EqualValues(t, 1, body.closed.Load())
}

func TestJSONStatus(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, status := range []int{100, 199, 300, 304, 404, 500} {
		r := buffered(status, long, true)
		v, err := JSON[*person](r, nil)
		require.Nil(t, v)
		var se *StatusError
		require.True(t, errors.As(err, &se))
		require.Equal(t, status, se.StatusCode)
		require.Equal(t, long[:4096], string(se.Body))
		r.Header.Set("Content-Type", "changed")
		require.Equal(t, http.Header{"Content-Type": {"application/json"}}, se.Header)
	}
	r, body := streamed(500, zeros{})
	_, err := JSON[person](r, nil)
	var se *StatusError
	require.True(t, errors.As(err, &se))
	require.Len(t, se.Body, 4096)
	require.EqualValues(t, 4096, body.read.Load())
	require.EqualValues(t, 1, body.closed.Load())
}

// What is wrong with a body is said without a word of it: it may be a secret.
func TestJSONErrorsQuoteNothing(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"Ann","age":secret}`:   "ax: body for ax.person is not JSON at byte 21",
		`{"name":"Ann"`:                 "ax: body for ax.person is not JSON at byte 13",
		`{"name":"Ann"} secret`:         "ax: body for ax.person is not JSON at byte 16",
		`{"name":"Ann","age":"secret"}`: "ax: body for ax.person does not fit int in field age at byte 28",
		`["secret"]`:                    "ax: body for ax.person does not fit ax.person at byte 1",
		`{"name":"A","born":"secret"}`:  "ax: body for ax.person was refused by a *time.ParseError",
	} {
		u, err := JSON[person](buffered(200, body, false), nil)
		require.EqualError(t, err, want, body)
		require.Zero(t, u, "nothing half decoded")
	}
	_, err := JSON[person](buffered(200, "{]", false), nil)
	var syntax *json.SyntaxError
	require.ErrorAs(t, err, &syntax)

	r, _ := streamed(200, iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err = JSON[person](r, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, err, "ax: reading a body for ax.person: unexpected EOF")
}
