package ax_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestD0CooldownRefusesWhileRunningAndAfter: the double click.
func TestD0CooldownRefusesWhileRunningAndAfter(t *testing.T) {
	order := ax.Request{Method: "POST", URL: at("/order"), JSON: map[string]any{"item": 1, "n": 2}, Cooldown: 3 * fsec}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(fsec, 201, "")
		first := t.Go(t.Context(), order)
		t.Until(500 * fms)
		res := t.Do(t.Context(), order)
		require.Equal(t, 500*fms, res.At)
		require.ErrorIs(t, res.Err, ax.ErrCooldown)
		require.Equal(t, "admit", fError(t, res.Err).Op)
		require.Equal(t, 201, (<-first).Status())

		t.Until(2 * fsec)
		res = t.Do(t.Context(), order)
		require.ErrorIs(t, res.Err, ax.ErrCooldown)
		require.Equal(t, 2*fsec, fError(t, res.Err).RetryAfter, "until 3 s after its end at 1 s")

		other := order
		other.JSON = map[string]any{"item": 1, "n": 3}
		require.Equal(t, 201, t.Do(t.Context(), other).Status(), "another body is another order")

		_, err := t.S.Submit(t.Context(), ax.Must(order.Task())).Result()
		require.ErrorIs(t, err, ax.ErrCooldown, "whoever asks")
		t.Until(4*fsec - fms)
		require.ErrorIs(t, t.Do(t.Context(), order).Err, ax.ErrCooldown)
		t.Until(4 * fsec)
		require.Equal(t, 201, t.Do(t.Context(), order).Status())
		require.Equal(t, 3, t.Server.Count())
		require.EqualValues(t, 4, t.S.Stats().Rejected)
	})
}

// When the one that runs will end, nobody knows.
func TestCooldownOfARunningTaskNamesNoMoment(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(10*fsec, 200, "")
		r := ax.Request{URL: at("/"), Cooldown: fsec}
		first := t.Go(dBG, r)
		synctest.Wait()
		e := fError(t, t.Do(dBG, r).Err)
		require.ErrorIs(t, e, ax.ErrCooldown)
		require.Zero(t, e.RetryAfter)
		require.NoError(t, (<-first).Err)
		time.Sleep(300 * fms)
		require.Equal(t, 700*fms, fError(t, t.Do(dBG, r).Err).RetryAfter)
	})
}

func TestD0CooldownIsPerOwnerAndBeforeSharing(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		get := ax.Request{URL: at("/"), Cooldown: 3 * fsec}
		require.NoError(t, t.Do(t.Context(), get).Err)
		require.ErrorIs(t, t.Do(t.Context(), get).Err, ax.ErrCooldown, "it would have been in the window: refused before it is shared")
		plain := t.Do(t.Context(), fGet("/"))
		require.NoError(t, plain.Err)
		require.Equal(t, ax.FromWindow, plain.Resp.Source, "who sets no cooldown is not refused")
		ann := get
		ann.Owner = "ann"
		require.NoError(t, t.Do(t.Context(), ann).Err, "the owner is part of the key")
	})
}

// TestD0AJoinerIsATaskOfItsOwn with its own Seq and events, and no slot.
func TestD0AJoinerIsATaskOfItsOwn(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxConcurrent: 1, OnEvent: ev.Add}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		a, b := t.S.Submit(t.Context(), ax.Must(fGet("/").Task())), t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		ra, err := a.Result()
		require.NoError(t, err)
		rb, err := b.Result()
		require.NoError(t, err)
		require.NotEqual(t, ra.Seq, rb.Seq)
		require.Equal(t, []uint64{a.Seq(), b.Seq()}, []uint64{ra.Seq, rb.Seq})
		for _, seq := range []uint64{ra.Seq, rb.Seq} {
			require.Equal(t, ax.EventSucceeded, ev.End(t, seq).Kind)
		}
		require.Len(t, ev.Of(ax.EventSubmitted), 2)
		require.Len(t, ev.Of(ax.EventCoalesced), 1)
		require.Len(t, ev.Of(ax.EventStarted), 1)
		require.Equal(t, ax.FromFlight, rb.Source)
	})
}

func TestD0CooldownOfATaskFromARequest(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		order := ax.Request{Method: "PUT", URL: at("/"), Body: []byte("x"), Cooldown: time.Minute}
		_, err := t.S.Send(t.Context(), order)
		require.NoError(t, err)
		req, err := http.NewRequest("PUT", at("/"), strings.NewReader("x"))
		require.NoError(t, err)
		_, err = t.S.Do(t.Context(), ax.Must(ax.TaskFrom(req, ax.Request{Cooldown: time.Minute})))
		require.ErrorIs(t, err, ax.ErrCooldown, "the same request built by net/http")
	})
}

// TestCooldownAppliesAfterFailureToo and leaves by time.
func TestCooldownAppliesAfterFailureToo(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fScript(fBreak(errFWire), fAnswer(200, ""))
		r := ax.Request{URL: at("/"), Cooldown: 2 * fsec}
		require.ErrorIs(t, t.Do(t.Context(), r).Err, errFWire)
		require.ErrorIs(t, t.Do(t.Context(), r).Err, ax.ErrCooldown)
		t.Until(2 * fsec)
		require.NoError(t, t.Do(t.Context(), r).Err)
	})
}
