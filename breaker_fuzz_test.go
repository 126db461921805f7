package ax

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainBreaker is the rule F6 written down without regard to cost: it keeps
// every attempt and finds the state by going through what has happened.
type plainBreaker struct {
	policy   Breaker
	mode     BreakerMode
	state    BreakerState
	since    instant // when the state was entered
	era      int     // counts the states
	attempts []*plainAttempt
	past     []tallied // in the present closed state
	passed   int       // probes of the present half-open state
}

type plainAttempt struct {
	era   int
	begun instant
	ended bool
}

func (m *plainBreaker) enter(at instant, s BreakerState) {
	m.state, m.since, m.past, m.passed = s, at, nil, 0
	m.era++
}

// flying are the attempts of this state that have not ended.
func (m *plainBreaker) flying() (n int, oldest instant) {
	oldest = never
	for _, a := range m.attempts {
		if !a.ended && a.era == m.era {
			n++
			oldest = min(oldest, a.begun)
		}
	}
	return n, oldest
}

func (m *plainBreaker) pass(now instant) {
	for m.mode == BreakerAuto {
		due := never
		next := BreakerClosed
		switch m.state {
		case BreakerOpen:
			due, next = m.since.add(m.policy.OpenFor), BreakerHalfOpen
		case BreakerHalfOpen:
			_, oldest := m.flying()
			due, next = oldest.add(max(m.policy.OpenFor, 30*time.Second)), BreakerOpen
		case BreakerRamping:
			due = m.since.add(m.policy.Ramp)
		}
		if due > now {
			return
		}
		m.enter(due, next)
	}
}

func (m *plainBreaker) admits() bool {
	n, _ := m.flying()
	return m.state != BreakerOpen && (m.state != BreakerHalfOpen || n+m.passed < m.policy.Probes)
}

func (m *plainBreaker) end(now instant, a *plainAttempt, failed bool) {
	a.ended = true
	if a.era != m.era || m.mode != BreakerAuto {
		return
	}
	switch {
	case m.state == BreakerClosed:
		m.past = append(m.past, tallied{now, failed})
		failures, calls := m.counts(now)
		if calls >= m.policy.MinCalls && failures*100 > 30*calls {
			m.enter(now, BreakerOpen)
		}
	case failed:
		m.enter(now, BreakerOpen)
	case m.state == BreakerHalfOpen:
		if m.passed++; m.passed == m.policy.Probes {
			m.enter(now, BreakerRamping)
		}
	}
}

func (m *plainBreaker) counts(now instant) (failures, calls int) {
	for _, o := range m.past[max(0, len(m.past)-m.policy.Window):] {
		if now-o.at <= instant(m.policy.MaxAge) {
			calls++
			if o.failed {
				failures++
			}
		}
	}
	return failures, calls
}

func (m *plainBreaker) force(now instant, mode BreakerMode) {
	m.mode = mode
	if mode == BreakerForceOpen {
		m.enter(now, BreakerOpen)
	} else {
		m.enter(now, BreakerClosed)
	}
}

// FuzzBreaker plays a script against the state machine and its plain model.
func FuzzBreaker(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x00\x02\x00\x00\x20\x04\x01\x00\x30"))
	f.Add(byte(2), []byte("\x00\x00\x02\x00\x00\x60\x00\x60\x06\x60\x07\x00\x0f\x00\x17\x00"))
	f.Fuzz(playBreaker)
}

// TestF6AgainstModel plays random scripts, with more begins than ends, so that
// probes hang and outcomes are late.
func TestF6AgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		script := make([]byte, 2*rnd.IntN(150))
		for i := range script {
			script[i] = byte(rnd.Uint32())
			switch {
			case i%2 == 1 && rnd.IntN(4) > 0:
				script[i] /= 16 // mostly short waits
			case i%2 == 0 && script[i]%8 == 7 && rnd.IntN(8) > 0:
				script[i] = 0 // an operator is rare
			}
		}
		playBreaker(t, byte(rnd.Uint32()), script)
	}
}

// playBreaker reads the policy from kind and, from each pair of bytes, an event
// and the tenths of a second before it.
func playBreaker(t *testing.T, kind byte, script []byte) {
	p := Breaker{
		Window: 1 + int(kind%7), MinCalls: 1 + int(kind%3), MaxAge: time.Duration(1+kind%5) * 4 * time.Second,
		FailureRate: 0.3, OpenFor: time.Duration(1+kind%50) * time.Second, Probes: 1 + int(kind%3), Ramp: 2 * time.Second,
	}
	b, m := newBreaker(p), &plainBreaker{policy: p}
	var held []permit
	now := instant(0)
	for ; len(script) >= 2; script = script[2:] {
		now += instant(script[1]) * 100 * ms
		m.pass(now)
		switch event, which := script[0]%8, int(script[0]/8); event {
		case 0, 1:
			require.Equal(t, m.admits(), b.admits(now))
			if m.admits() {
				held = append(held, b.begin(now))
				m.attempts = append(m.attempts, &plainAttempt{era: m.era, begun: now})
			}
		case 7:
			b.force(now, BreakerMode(which%3))
			m.force(now, BreakerMode(which%3))
		default:
			if len(held) == 0 || m.attempts[len(held)-1-which%len(held)].ended {
				continue
			}
			i := len(held) - 1 - which%len(held) // the latest, or one of those before
			if event == 6 {
				b.abandon(now, held[i])
				m.attempts[i].ended = true
				break
			}
			b.done(now, held[i], event < 4)
			m.end(now, m.attempts[i], event < 4)
		}
		checkBreaker(t, b, m, now)
	}
}

// checkBreaker checks what must hold after every event.
func checkBreaker(t *testing.T, b *breaker, m *plainBreaker, now instant) {
	t.Helper()
	b.tick(now)
	require.Equal(t, m.state, b.state())
	require.Equal(t, m.admits(), b.admits(now))
	require.Greater(t, b.wakeAt(), now, "a transition that is due has been made")
	if m.state == BreakerClosed && m.mode == BreakerAuto {
		failures, calls := m.counts(now)
		gotFailures, gotCalls := b.counts(now)
		require.Equal(t, [2]int{failures, calls}, [2]int{gotFailures, gotCalls})
	}
	limit := b.limit(now, 100)
	require.True(t, limit >= b.policy.Probes && limit <= 100, "limit %d", limit)
	at := b.earliest(now, 0, 100, time.Second)
	require.GreaterOrEqual(t, at, now)
	require.False(t, at == now && !b.admits(now), "earliest says now, admits says no")
}
