package ax

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonicalJSONIsBounded(t *testing.T) {
	deep := strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6)
	_, ok := canonicalJSON([]byte(deep))
	require.False(t, ok, "deeper than encoding/json goes")
}

// FuzzCanonicalJSON: white space makes no difference, and equal forms mean the same.
func FuzzCanonicalJSON(f *testing.F) {
	f.Add([]byte(`{"b":[1,2.0,{"x":null}],"a":"\u00e9\n"}`), []byte(`{"a":"é\n","b":[1,2.0,{"x":null}]}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2,"a":1}`))
	f.Add([]byte(`"\ud800"`), []byte(`"�"`))
	f.Add([]byte(` [ ] `), []byte(`[{}]`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ca, ok := canonicalJSON(a)
		if !ok {
			return
		}
		var wide, narrow bytes.Buffer
		require.NoError(t, json.Indent(&wide, a, "\r\n", " \t"))
		require.NoError(t, json.Compact(&narrow, a))
		for _, same := range [][]byte{wide.Bytes(), narrow.Bytes()} {
			c, ok := canonicalJSON(same)
			require.True(t, ok)
			require.Equal(t, ca, c)
		}
		if cb, ok := canonicalJSON(b); ok && bytes.Equal(ca, cb) {
			require.Equal(t, decoded(t, a), decoded(t, b))
		}
	})
}

func decoded(t *testing.T, b []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&v))
	return v
}

func BenchmarkCanonicalJSON(b *testing.B) {
	text := []byte(`[` + strings.Repeat(`{"name":"a","id":12345,"tags":["x","y"],"nested":{"b":1,"a":2}},`, 1000) + `0]`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		canonicalJSON(text)
	}
}
