package ax

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fullHints() Hints {
	return Hints{
		Priority: Urgent, Lane: "l", Owner: "o", Tags: []string{"a", "b"}, AttemptTimeout: time.Second, QueueTimeout: time.Minute,
		NoRetry: true, NoWait: true, NoDedupe: true,
	}
}

func TestHintsFromPlainContext(t *testing.T) {
	require.Equal(t, Hints{}, HintsFrom(context.Background()))
}

func TestContextWith(t *testing.T) {
	h := fullHints()
	ctx := ContextWith(t.Context(), h)
	h.Tags[0] = "changed"
	require.Equal(t, fullHints(), HintsFrom(ctx))
	HintsFrom(ctx).Tags[0] = "changed"
	require.Equal(t, fullHints(), HintsFrom(ctx))

	inner := ContextWith(ctx, Hints{Lane: "inner"})
	require.Equal(t, Hints{Lane: "inner"}, HintsFrom(inner), "replaced as a whole")
	require.Equal(t, fullHints(), HintsFrom(ctx))
}

func TestHintsFill(t *testing.T) {
	filled := func(h, outer Hints) Hints { h.fill(&outer); return h }
	require.Equal(t, fullHints(), filled(Hints{}, fullHints()))
	require.Equal(t, fullHints(), filled(fullHints(), Hints{}))
	other := Hints{Priority: Low, Lane: "m", Owner: "p", Tags: []string{"c"}, AttemptTimeout: 1, QueueTimeout: 2}
	want := other
	want.NoRetry, want.NoWait, want.NoDedupe = true, true, true
	require.Equal(t, want, filled(other, fullHints()))
	other.fill(nil)
	require.Equal(t, Low, other.Priority)
}

func TestHintsValidate(t *testing.T) {
	full := fullHints()
	require.NoError(t, full.validate())
	require.NoError(t, (*Hints)(nil).validate())
	require.EqualError(t, (&Hints{AttemptTimeout: -1, QueueTimeout: -time.Second}).validate(),
		"ax: invalid request: Hints.AttemptTimeout: -1ns is negative\nHints.QueueTimeout: -1s is negative")
}
