package axdebug

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/axsched/ax"
)

// shownWaiters is how many waiting tasks /stats.json lists.
const shownWaiters = 100

// statsJSON is /stats.json. Durations are numbers of seconds, times RFC 3339.
type statsJSON struct {
	Time       time.Time            `json:"time"`
	Active     int                  `json:"active"`
	Queued     int                  `json:"queued"`
	Parked     int                  `json:"parked"`
	Submitted  uint64               `json:"submitted"`
	Succeeded  uint64               `json:"succeeded"`
	Failed     uint64               `json:"failed"`
	Canceled   uint64               `json:"canceled"`
	Rejected   uint64               `json:"rejected"`
	Attempts   uint64               `json:"attempts"`
	Retries    uint64               `json:"retries"`
	Coalesced  uint64               `json:"coalesced"`
	WindowHits uint64               `json:"window_hits"`
	Fallbacks  uint64               `json:"fallbacks"`
	Dedupe     dedupeJSON           `json:"dedupe"`
	Lanes      map[string]laneJSON  `json:"lanes"`
	Owners     map[string]ownerJSON `json:"owners"`
	Waiting    []waiterJSON         `json:"waiting"`
	Advice     []adviceJSON         `json:"advice"`
	Would      wouldJSON            `json:"would"`
}

type dedupeJSON struct {
	HitRate float64 `json:"hit_rate"` // of the submitted tasks
	Entries int     `json:"entries"`
	Bytes   int64   `json:"bytes"`
}

type laneJSON struct {
	Active        int           `json:"active"`
	Queued        int           `json:"queued"`
	Parked        int           `json:"parked"`
	Breaker       string        `json:"breaker"`
	BreakerUntil  *time.Time    `json:"breaker_until,omitempty"`
	Paused        bool          `json:"paused"`
	PausedUntil   *time.Time    `json:"paused_until,omitempty"`
	MaxConcurrent int           `json:"max_concurrent"`
	Attempts      uint64        `json:"attempts"`
	Failures      uint64        `json:"failures"`
	Wait          quantilesJSON `json:"wait_seconds"`
	Service       quantilesJSON `json:"service_seconds"`
	Would         wouldJSON     `json:"would"`
}

type quantilesJSON struct {
	P50 seconds `json:"p50"`
	P95 seconds `json:"p95"`
	P99 seconds `json:"p99"`
}

type ownerJSON struct {
	Active  int       `json:"active"`
	Queued  int       `json:"queued"`
	Started uint64    `json:"started"`
	Over    uint64    `json:"over"`
	Would   wouldJSON `json:"would"`
}

type waiterJSON struct {
	Seq      uint64    `json:"seq"`
	Lane     string    `json:"lane"`
	Owner    string    `json:"owner,omitempty"`
	Method   string    `json:"method"`
	URL      string    `json:"url"`
	Priority int       `json:"priority"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	Parked   bool      `json:"parked"`
	For      string    `json:"for"`
}

type adviceJSON struct {
	Lane      string `json:"lane"`
	Field     string `json:"field"`
	Current   string `json:"current"`
	Suggested string `json:"suggested"`
	Why       string `json:"why"`
}

type wouldJSON struct {
	Queued     uint64        `json:"queued"`
	Rejected   uint64        `json:"rejected"`
	Superseded uint64        `json:"superseded"`
	Cooled     uint64        `json:"cooled"`
	Held       uint64        `json:"held"`
	Wait       quantilesJSON `json:"wait_seconds"`
}

func (h *handler) serveStats(w http.ResponseWriter) {
	b, err := json.MarshalIndent(h.stats(time.Now()), "", "  ")
	if err != nil {
		panic("axdebug: " + err.Error()) // strings and numbers alone
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // who has gone needs no answer
}

func (h *handler) stats(now time.Time) statsJSON {
	st := h.s.Stats()
	out := statsJSON{
		Time:   now,
		Active: st.Active, Queued: st.Queued, Parked: st.Parked,
		Submitted: st.Submitted, Succeeded: st.Succeeded, Failed: st.Failed, Canceled: st.Canceled, Rejected: st.Rejected,
		Attempts: st.Attempts, Retries: st.Retries, Coalesced: st.Coalesced, WindowHits: st.WindowHits, Fallbacks: st.Fallbacks,
		Dedupe:  dedupeJSON{Entries: st.DedupeEntries, Bytes: st.DedupeBytes},
		Lanes:   make(map[string]laneJSON, len(st.Lanes)),
		Owners:  make(map[string]ownerJSON, len(st.Owners)),
		Waiting: []waiterJSON{},
		Advice:  []adviceJSON{},
		Would:   wouldOf(st.Would),
	}
	if st.Submitted > 0 {
		out.Dedupe.HitRate = float64(st.Coalesced+st.WindowHits) / float64(st.Submitted)
	}
	for name, l := range st.Lanes {
		out.Lanes[spelled(name)] = laneOf(l)
	}
	for name, o := range st.Owners {
		out.Owners[spelled(name)] = ownerJSON{Active: o.Active, Queued: o.Queued, Started: o.Started, Over: o.Over, Would: wouldOf(o.Would)}
	}
	for _, x := range h.s.Waiting(shownWaiters) {
		out.Waiting = append(out.Waiting, waiterJSON{
			Seq: x.Seq, Lane: spelled(x.Lane), Owner: spelled(x.Owner), Method: x.Method, URL: x.URL,
			Priority: int(x.Priority), Since: x.Since, Attempts: x.Attempts, Parked: x.Parked, For: x.For,
		})
	}
	for _, a := range h.s.Advice() {
		out.Advice = append(out.Advice, adviceOf(a))
	}
	return out
}

func laneOf(l ax.LaneStats) laneJSON {
	return laneJSON{
		Active: l.Active, Queued: l.Queued, Parked: l.Parked,
		Breaker: l.Breaker.String(), BreakerUntil: timeOrNil(l.BreakerUntil),
		Paused: l.Paused, PausedUntil: timeOrNil(l.PausedUntil),
		MaxConcurrent: l.MaxConcurrent, Attempts: l.Attempts, Failures: l.Failures,
		Wait: quantilesOf(l.Wait), Service: quantilesOf(l.Service), Would: wouldOf(l.Would),
	}
}

func adviceOf(a ax.Advice) adviceJSON {
	return adviceJSON{Lane: a.Lane, Field: a.Field, Current: setting(a.Current), Suggested: setting(a.Suggested), Why: a.Why}
}

func wouldOf(w ax.WouldStats) wouldJSON {
	return wouldJSON{
		Queued: w.Queued, Rejected: w.Rejected, Superseded: w.Superseded, Cooled: w.Cooled, Held: w.Held,
		Wait: quantilesOf(w.Wait),
	}
}

func quantilesOf(q ax.Quantiles) quantilesJSON {
	return quantilesJSON{P50: seconds(q.P50), P95: seconds(q.P95), P99: seconds(q.P99)}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
