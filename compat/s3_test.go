package compat_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// bucket is as much of an object store as put, get and list need, with paths of
// the form /bucket/key.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPut:
		b.put(key, r)
	case r.Method == http.MethodGet && key == "":
		b.list(w)
	case r.Method == http.MethodGet:
		b.get(w, key)
	default:
		http.Error(w, r.Method, http.StatusMethodNotAllowed)
	}
}

// put stores a body, which over TLS is framed by the SDK: chunks and a checksum.
func (b *bucket) put(key string, r *http.Request) {
	var body io.Reader = r.Body
	if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		body = httputil.NewChunkedReader(body)
	}
	p, err := io.ReadAll(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = make(map[string][]byte)
	}
	b.objects[key] = p
}

func (b *bucket) get(w http.ResponseWriter, key string) {
	b.mu.Lock()
	p, ok := b.objects[key]
	b.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(p)))
	w.Write(p)
}

func (b *bucket) list(w http.ResponseWriter) {
	type content struct{ Key string }
	var answer struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}
	b.mu.Lock()
	for key := range b.objects {
		answer.Contents = append(answer.Contents, content{key})
	}
	b.mu.Unlock()
	slices.SortFunc(answer.Contents, func(x, y content) int { return cmp.Compare(x.Key, y.Key) })
	xml.NewEncoder(w).Encode(answer)
}

// s3Client is the SDK's client as it comes, over the given transport.
func s3Client(transport http.RoundTripper, url, user string, change ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(url),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(user, "secret", ""),
		HTTPClient:   &http.Client{Transport: transport},
	}, change...)
}

func s3Put(ctx context.Context, c *s3.Client, key string, body io.Reader) error {
	_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("shop"), Key: aws.String(key), Body: body})
	return err
}

func s3Get(ctx context.Context, c *s3.Client, key string) (*s3.GetObjectOutput, error) {
	return c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("shop"), Key: aws.String(key)})
}

// TestS3PutGetList: objects small and large go and come back, over plain HTTP with
// a checksum in the header, over TLS and HTTP/2 with one in the trailer.
func TestS3PutGetList(t *testing.T) {
	for name, serve := range map[string]func(http.Handler) *httptest.Server{
		"plain": httptest.NewServer, "tls": httptest.NewTLSServer, "h2": newH2Server,
	} {
		t.Run(name, func(t *testing.T) {
			r := rigOver(t, quick(), serve(new(bucket)), nil)
			c, ctx := s3Client(r.Transport(), r.Server.URL, "ann"), soon(t)
			large := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB, over MaxBodyBytes
			require.NoError(t, s3Put(ctx, c, "small", strings.NewReader("hello")))
			require.NoError(t, s3Put(ctx, c, "large", bytes.NewReader(large)))

			out, err := s3Get(ctx, c, "small")
			require.NoError(t, err)
			require.Equal(t, 0, r.Stats().Active, "a small object is buffered: its slot is free")
			p, err := io.ReadAll(out.Body)
			require.NoError(t, err)
			require.NoError(t, out.Body.Close())
			require.Equal(t, "hello", string(p))

			out, err = s3Get(ctx, c, "large")
			require.NoError(t, err)
			require.Equal(t, 1, r.Stats().Active, "a large object is streamed: its slot is held")
			p, err = io.ReadAll(out.Body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(large, p))
			require.NoError(t, out.Body.Close())
			require.Equal(t, 0, r.Stats().Active)

			list, err := c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("shop")})
			require.NoError(t, err)
			require.Len(t, list.Contents, 2)
			require.Equal(t, "large", aws.ToString(list.Contents[0].Key))
			require.Equal(t, "small", aws.ToString(list.Contents[1].Key))

			_, err = s3Get(ctx, c, "none")
			require.ErrorContains(t, err, "NoSuchKey")
			require.Equal(t, 6, r.Sent())
		})
	}
}

// TestS3Retries: who retries is counted. A write is the SDK's to retry, since its
// body cannot be opened again from outside; a read is both's unless one is told not to.
func TestS3Retries(t *testing.T) {
	still := func(o *s3.Options) { o.Retryer = aws.NopRetryer{} }
	eager := func(o *s3.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	}
	down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	noRetry := ax.Hints{NoRetry: true}
	for name, c := range map[string]struct {
		hints  ax.Hints
		change func(*s3.Options)
		put    bool
		sent   int
	}{
		"read, ax alone":      {ax.Hints{}, still, false, 3},
		"read, the SDK alone": {noRetry, eager, false, 3},
		"read, both":          {ax.Hints{}, eager, false, 6}, // 3, and what ax's retry budget leaves: 3 more
		"write, ax alone":     {ax.Hints{}, still, true, 1},
		"write, both":         {ax.Hints{}, eager, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, quick(), down)
			client, ctx := s3Client(r.TransportWith(c.hints), r.Server.URL, "ann", c.change), soon(t)
			if c.put {
				require.Error(t, s3Put(ctx, client, "k", strings.NewReader("hello")))
			} else {
				_, err := s3Get(ctx, client, "k")
				require.Error(t, err)
			}
			require.Equal(t, c.sent, r.Sent())
		})
	}
}

// TestS3UsersApart: the SDK signs each call with an id of its own, so neither two
// users nor two calls of one user ever share an answer.
func TestS3UsersApart(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		_, user, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		user, _, _ = strings.Cut(user, "/")
		io.WriteString(w, user)
	})
	users := []string{"ann", "bob", "ann", "bob"}
	got := make([]string, len(users))
	together(len(users), func(i int) {
		out, err := s3Get(soon(t), s3Client(r.Transport(), r.Server.URL, users[i]), "me")
		if err != nil {
			return
		}
		p, _ := io.ReadAll(out.Body)
		out.Body.Close()
		got[i] = string(p)
	})
	require.Equal(t, users, got)
	require.Equal(t, 4, r.Sent())
	require.Zero(t, r.Stats().Coalesced)
}

// TestS3Canceled: a call that its caller ends is one request, and an error that the
// SDK knows for what it is.
func TestS3Canceled(t *testing.T) {
	arrived := make(chan struct{})
	r := newRig(t, quick(), func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(soon(t))
	go func() { // ends with the request's arrival
		<-arrived
		cancel()
	}()
	_, err := s3Get(ctx, s3Client(r.Transport(), r.Server.URL, "ann"), "k")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, errors.As(err, new(*smithy.CanceledError)), "%v", err)
	require.Equal(t, 1, r.Sent())
}

// TestS3Unread: an object that is closed unread gives its slot back.
func TestS3Unread(t *testing.T) {
	b := &bucket{objects: map[string][]byte{"large": make([]byte, 8<<20)}}
	r := newRig(t, quick(), b.ServeHTTP)
	out, err := s3Get(soon(t), s3Client(r.Transport(), r.Server.URL, "ann"), "large")
	require.NoError(t, err)
	require.Equal(t, 1, r.Stats().Active)
	require.NoError(t, out.Body.Close())
	require.Equal(t, 0, r.Stats().Active)
}

// axHasSpoken is one of the SDK's rules on what to retry: no failure that ax reports.
func axHasSpoken(err error) aws.Ternary {
	if _, ok := errors.AsType[*ax.Error](err); ok {
		return aws.FalseTernary
	}
	return aws.UnknownTernary
}

// TestS3Refused: to the SDK a refusal is an error of the connection, which it tries
// again; a rule of one's own says not to.
func TestS3Refused(t *testing.T) {
	for name, c := range map[string]struct {
		rules []retry.IsErrorRetryable
		tasks uint64
	}{
		"default":      {nil, 2},
		"of one's own": {[]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(axHasSpoken)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ax.Config{}, http.NotFound)
			require.NoError(t, r.Pause(""))
			rules := func(o *s3.Options) {
				o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
					o.MaxAttempts = 2
					o.MaxBackoff = time.Millisecond
					o.Retryables = append(c.rules, o.Retryables...)
				})
			}
			transport := r.TransportWith(ax.Hints{NoWait: true})
			_, err := s3Get(soon(t), s3Client(transport, r.Server.URL, "ann", rules), "k")
			require.ErrorIs(t, err, ax.ErrWouldWait)
			require.Equal(t, c.tasks, r.Stats().Rejected)
			require.Equal(t, 0, r.Sent())
		})
	}
}

// An S3 client behind the gate: at most four requests at once, retried by the SDK alone.
func Example_s3() {
	server := httptest.NewServer(new(bucket))
	defer server.Close()
	cfg := ax.Recommended()
	cfg.MaxConcurrent = 4
	sched, err := ax.New(nil, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client := s3.New(s3.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(server.URL),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:   &http.Client{Transport: sched.TransportWith(ax.Hints{NoRetry: true})}, // the SDK retries
	})
	ctx := context.Background()
	if err := s3Put(ctx, client, "greeting", strings.NewReader("hello")); err != nil {
		log.Fatal(err)
	}
	out, err := s3Get(ctx, client, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}
