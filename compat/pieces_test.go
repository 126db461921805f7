package compat_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// inPieces sends "one " at once and "two" when told to.
func inPieces(contentType string, next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, "one ")
		w.(http.Flusher).Flush()
		select {
		case <-next:
			io.WriteString(w, "two")
		case <-r.Context().Done():
		}
	}
}

// readPieces reads what inPieces sends, each piece before the next one is sent.
func readPieces(t *testing.T, r *rig, body io.ReadCloser, next chan<- struct{}) {
	t.Helper()
	first := make([]byte, len("one "))
	_, err := io.ReadFull(body, first)
	require.NoError(t, err)
	require.Equal(t, "one ", string(first))
	require.Equal(t, 1, r.Stats().Active)
	close(next)
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "two", string(rest))
	require.NoError(t, body.Close())
	require.Equal(t, 0, r.Stats().Active)
}
