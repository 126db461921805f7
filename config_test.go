package ax

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// staticFallback is a Fallback that always answers.
func staticFallback() *Fallback {
	return &Fallback{Static: func(context.Context, *Task, error) (*http.Response, error) { return &http.Response{}, nil }}
}

// fullConfig is a valid Config in which every policy is set, at every place.
func fullConfig() Config {
	lane := func(name string, match ...string) Lane {
		return Lane{
			Name: name, Match: match, Rate: PerSecond(5),
			Retry: &Retry{}, Breaker: &Breaker{}, Fallback: staticFallback(), Hedge: &Hedge{},
		}
	}
	hosts := lane("")
	return Config{
		Rate:   []Rate{{Limit: 10}, {Limit: 5000, Per: 24 * time.Hour}},
		Dedupe: &Dedupe{IgnoreHeaders: []string{"x-trace"}},
		Retry:  &Retry{}, Breaker: &Breaker{}, Fallback: staticFallback(), Hedge: &Hedge{},
		Lanes:   []Lane{lane("pay", "POST pay.test/v1/"), lane("", "a.test", "b.test:8080")},
		Hosts:   &hosts,
		Budgets: map[string]Budget{"team-a": {Rate: PerMinute(500)}},
		Owners:  &Budget{Rate: PerMinute(100)},
	}
}

func TestValidConfigs(t *testing.T) {
	for name, c := range map[string]Config{
		"zero":        {},
		"recommended": Recommended(),
		"full":        fullConfig(),
		"no limits":   {MaxConcurrent: NoLimit, MaxQueue: NoLimit, Rate: Unlimited()},
		"no timeouts": {AttemptTimeout: NoTimeout, IdleTimeout: NoTimeout, QueueTimeout: NoTimeout, MinRemaining: NoTimeout, AgingStep: NoTimeout},
		"lane off": {Retry: &Retry{}, Breaker: &Breaker{Probes: 5}, Fallback: staticFallback(), Lanes: []Lane{{
			Name: "x", MaxConcurrent: 1, NoRetry: true, NoBreaker: true, NoFallback: true, AttemptTimeout: NoTimeout,
		}}},
		"guard above per":     {Rate: []Rate{{Limit: 1, Per: time.Second, Guard: 2 * time.Second}}},
		"smooth quota":        {Rate: []Rate{{Limit: 5, Smooth: true, Guard: time.Millisecond}}},
		"bucket":              {Rate: []Rate{{Limit: 5, Burst: 10}}},
		"short MaxDelay":      {Retry: &Retry{MaxDelay: 50 * time.Millisecond}},
		"probes fit":          {MaxConcurrent: 3, Breaker: &Breaker{Probes: 3}, Hosts: &Lane{MaxConcurrent: 3}},
		"never opens":         {Breaker: &Breaker{FailureRate: 1}},
		"overlap in one lane": {Lanes: []Lane{{Match: []string{"a.test/{x}/1", "a.test/2/{y}"}}}},
		"narrower elsewhere": {Lanes: []Lane{
			{Match: []string{"a.test"}}, {Match: []string{"a.test:8080"}}, {Match: []string{"a.test/v1/"}},
			{Match: []string{"GET a.test/v1/"}}, {Match: []string{"HEAD a.test/v1/"}}, {Match: []string{"a.test/v1/{$}"}},
			{Match: []string{"a.test/v1/{id}"}}, {Match: []string{"[::1]:8080/x"}}, {Match: []string{"b.test/{rest...}"}},
		}},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, c.validate()) })
	}
}

func TestRecommended(t *testing.T) {
	want := Config{Dedupe: &Dedupe{}, Retry: &Retry{}, Breaker: &Breaker{}, Hosts: &Lane{MaxConcurrent: 6}}
	require.Equal(t, want, Recommended())
	Recommended().Hosts.MaxConcurrent = 1
	require.Equal(t, want, Recommended(), "each call returns a new one")
}

// TestEveryNegativeNumberIsRefused sets each number of a Config to a negative
// value, wherever it is nested, and wants its path in the error.
func TestEveryNegativeNumberIsRefused(t *testing.T) {
	var paths []string
	c := fullConfig()
	eachNumber(reflect.ValueOf(&c).Elem(), "", func(path string, v reflect.Value) {
		paths = append(paths, path)
		old := reflect.ValueOf(v.Interface())
		if v.CanInt() {
			v.SetInt(-3)
		} else {
			v.SetFloat(-3)
		}
		err := c.validate()
		require.Error(t, err, path)
		require.Contains(t, err.Error(), "ax: Config."+path+" is "+numberText(v)+"; want ", path)
		v.Set(old)
		require.NoError(t, c.validate(), path)
	})
	require.Contains(t, paths, "Rate[1].Guard")
	require.Contains(t, paths, "Lanes[1].Breaker.FailureRate")
	require.Contains(t, paths, "Hosts.Hedge.After")
	require.Contains(t, paths, `Owners.Rate[0].Per`)
	require.Len(t, paths, 125)
}

// numberText is a number as errors show it.
func numberText(v reflect.Value) string {
	if s, ok := v.Interface().(interface{ String() string }); ok {
		return s.String()
	}
	return strconv.Itoa(-3)
}

// eachNumber calls f for every number below v that can be set: map values are
// visited by TestBudgetPaths.
func eachNumber(v reflect.Value, path string, f func(string, reflect.Value)) {
	switch {
	case v.CanInt() || v.CanFloat():
		f(path, v)
	case v.Kind() == reflect.Pointer && !v.IsNil() && v.Type() != reflect.TypeFor[*Task]() && v.Type() != reflect.TypeFor[*slog.Logger]():
		eachNumber(v.Elem(), path, f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			eachNumber(v.Index(i), elem(path, i), f)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			eachNumber(v.Field(i), dot(path, v.Type().Field(i).Name), f)
		}
	}
}

func TestBudgetPaths(t *testing.T) {
	c := Config{Budgets: map[string]Budget{
		"team-b": {Rate: []Rate{{Limit: 1}, {Limit: 1, Per: -time.Second}}, Over: 9},
		"team-a": {MaxConcurrent: -1, MaxQueue: -2},
		"":       {},
	}}
	require.EqualError(t, c.validate(), strings.Join([]string{
		`ax: Config.Budgets[""] names no owner; tasks without an Owner have no budget`,
		`ax: Config.Budgets["team-a"].MaxConcurrent is -1; want 1 or more, or 0 for no limit`,
		`ax: Config.Budgets["team-a"].MaxQueue is -2; want 1 or more, or 0 for no limit`,
		`ax: Config.Budgets["team-b"].Rate[1].Per is -1s; want more than 0, or 0 for 1s`,
		`ax: Config.Budgets["team-b"].Over is OverAction(9); want ax.OverQueue, ax.OverFallback or ax.OverReject`,
	}, "\n"))
}

// TestCaseH38OddConfiguration: what cannot work is refused when it is built.
func TestCaseH38OddConfiguration(t *testing.T) {
	const at = "ax: Config."
	rate := func(r Rate) Config { return Config{Rate: []Rate{r}} }
	lanes := func(ls ...Lane) Config { return Config{Lanes: ls} }
	for _, tt := range []struct {
		name string
		c    Config
		want string
	}{
		{"rate 0", rate(Rate{}), `Rate[0].Limit is 0; want at least 1, or ax.Unlimited() for no rate`},
		{"rate NoLimit", rate(Rate{Limit: NoLimit}), `Rate[0].Limit is ax.NoLimit; use ax.Unlimited() for no rate`},
		{"rate for ever", rate(Rate{Limit: 1, Per: NoTimeout}), `Rate[0].Per is ax.NoTimeout, so no start would ever be allowed again; want a time such as 24h`},
		{"guard for ever", rate(Rate{Limit: 1, Guard: NoTimeout}), `Rate[0].Guard is 2562047h47m16.854775807s, too long to be added to Per; want a small part of Per`},
		{"smooth bucket", rate(Rate{Limit: 1, Burst: 2, Smooth: true}), `Rate[0].Smooth is true beside Burst 2; a token bucket is not spaced: set one of them`},
		{"guarded bucket", rate(Rate{Limit: 1, Burst: 2, Guard: time.Second}), `Rate[0].Guard is 1s beside Burst 2; a token bucket has no window to widen: set one of them`},
		{"overflow", Config{Overflow: 2}, `Overflow is Overflow(2); want ax.OverflowReject or ax.OverflowEvict`},
		{"nil func", Config{Executor: ExecutorFunc(nil)}, `Executor is a nil ExecutorFunc; leave it nil for HTTP`},

		{"delays", Config{Retry: &Retry{BaseDelay: time.Second, MaxDelay: time.Millisecond}}, `Retry.BaseDelay is 1s, above MaxDelay (1ms); lower it, or raise MaxDelay`},
		{"delay above default", Config{Retry: &Retry{BaseDelay: time.Minute}}, `Retry.BaseDelay is 1m0s, above MaxDelay (30s); lower it, or raise MaxDelay`},
		{"jitter", Config{Retry: &Retry{Jitter: 3}}, `Retry.Jitter is Jitter(3); want ax.FullJitter, ax.EqualJitter or ax.NoJitter`},
		{"budget NaN", Config{Retry: &Retry{Budget: math.NaN()}}, `Retry.Budget is NaN; want a share of the first attempts such as 0.1, or 0 for 0.2`},
		{"budget Inf", Config{Retry: &Retry{Budget: math.Inf(1)}}, `Retry.Budget is +Inf; want a share of the first attempts such as 0.1, or 0 for 0.2`},

		{"window", Config{Breaker: &Breaker{Window: NoLimit}}, `Breaker.Window is 9223372036854775807; want at most 1000000`},
		{"min calls", Config{Breaker: &Breaker{Window: 5, MinCalls: 6}}, `Breaker.MinCalls is 6, above Window (5), so it would never open; lower it, or raise Window`},
		{"min calls default", Config{Breaker: &Breaker{MinCalls: 11}}, `Breaker.MinCalls is 11, above Window (10), so it would never open; lower it, or raise Window`},
		{"failure rate", Config{Breaker: &Breaker{FailureRate: 30}}, `Breaker.FailureRate is 30; want a share up to 1 such as 0.5, or 0 for 0.3`},
		{"failure rate NaN", Config{Breaker: &Breaker{FailureRate: math.NaN()}}, `Breaker.FailureRate is NaN; want a share up to 1 such as 0.5, or 0 for 0.3`},
		{"when open", Config{Breaker: &Breaker{WhenOpen: 2}}, `Breaker.WhenOpen is OpenAction(2); want ax.OpenHold or ax.OpenReject`},
		{"probes", Config{Breaker: &Breaker{Probes: 65}}, `Breaker.Probes is 65, above Config.MaxConcurrent (64); lower it, or raise the limit`},
		{"probes of hosts", Config{Breaker: &Breaker{Probes: 7}, Hosts: &Lane{MaxConcurrent: 6}}, `Breaker.Probes is 7, above Config.Hosts.MaxConcurrent (6); lower it, or raise the limit`},
		{"probes inherited", Config{Breaker: &Breaker{Probes: 2}, Lanes: []Lane{{Name: "x"}, {Name: "y", MaxConcurrent: 1}}}, `Breaker.Probes is 2, above Config.Lanes[1].MaxConcurrent (1); lower it, or raise the limit`},
		{"probes of a lane", lanes(Lane{Name: "x", MaxConcurrent: 2, Breaker: &Breaker{Probes: 3}}), `Lanes[0].Breaker.Probes is 3, above Config.Lanes[0].MaxConcurrent (2); lower it, or raise the limit`},
		{"probes above all", Config{MaxConcurrent: 2, Lanes: []Lane{{Name: "x", Breaker: &Breaker{Probes: 3}}}}, `Lanes[0].Breaker.Probes is 3, above Config.MaxConcurrent (2); lower it, or raise the limit`},

		{"empty fallback", Config{Fallback: &Fallback{}}, `Fallback has no Alternate, Stale or Static, so it can never answer; set one, or leave the Fallback nil`},
		{"authorization", Config{Dedupe: &Dedupe{IgnoreHeaders: []string{"X-A", "authorization"}}}, `Dedupe.IgnoreHeaders[1] is "authorization"; it tells users apart, and one must never get another's answer`},
		{"header", Config{Dedupe: &Dedupe{IgnoreHeaders: []string{"X A"}}}, `Dedupe.IgnoreHeaders[0] is "X A"; want the name of a header`},
		{"no header", Config{Dedupe: &Dedupe{IgnoreHeaders: []string{""}}}, `Dedupe.IgnoreHeaders[0] is ""; want the name of a header`},

		{"lane of nothing", lanes(Lane{}), `Lanes[0].Name is empty and so is Match, so nothing could ever use this lane; set one`},
		{"same name", lanes(Lane{Name: "a.test"}, Lane{Match: []string{"a.test"}}), `Lanes[1].Name is "a.test", as is that of Config.Lanes[0]; lanes need different names`},
		{"retry off", lanes(Lane{Name: "x", Retry: &Retry{}, NoRetry: true}), `Lanes[0].NoRetry is true beside Retry; set one of them`},
		{"breaker off", lanes(Lane{Name: "x", Breaker: &Breaker{}, NoBreaker: true}), `Lanes[0].NoBreaker is true beside Breaker; set one of them`},
		{"fallback off", lanes(Lane{Name: "x", Fallback: staticFallback(), NoFallback: true}), `Lanes[0].NoFallback is true beside Fallback; set one of them`},
		{"template name", Config{Hosts: &Lane{Name: "x"}}, `Hosts.Name is "x"; a template has none, each lane is named by its host`},
		{"template match", Config{Hosts: &Lane{Match: []string{"a.test"}}}, `Hosts.Match is ["a.test"]; a template has none, it is for every host outside Lanes`},

		{"malformed match", lanes(Lane{Match: []string{"a.test", "https://b.test"}}), `Lanes[0].Match[1] is "https://b.test": leave the scheme out; a pattern begins with the host`},
		{"same match", lanes(Lane{Match: []string{"a.test/"}}, Lane{Match: []string{"A.Test"}}), `Lanes[1].Match[0] is "A.Test", the same as Config.Lanes[0].Match[0]; a pattern belongs to one lane`},
		{"ambiguous match", lanes(Lane{Match: []string{"a.test/{x}/1"}}, Lane{Match: []string{"a.test/2/{y}"}}), `Lanes[1].Match[0] is "a.test/2/{y}", which conflicts with Config.Lanes[0].Match[0] ("a.test/{x}/1"): both match some request and neither is more specific; narrow one of them, or put both in one lane`},
		{"same but for a wildcard's name", lanes(Lane{Match: []string{"a.test/{x}"}}, Lane{Match: []string{"a.test/{y}"}}), `Lanes[1].Match[0] is "a.test/{y}", the same as Config.Lanes[0].Match[0]; a pattern belongs to one lane`},
	} {
		t.Run(tt.name, func(t *testing.T) { require.EqualError(t, tt.c.validate(), at+tt.want) })
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	c := Config{
		MaxConcurrent: -1,
		Retry:         &Retry{Max: -1},
		Lanes:         []Lane{{Name: "x"}, {Name: "y", Rate: []Rate{{Limit: -3}}, QueueTimeout: -time.Second}},
	}
	require.EqualError(t, c.validate(), strings.Join([]string{
		`ax: Config.MaxConcurrent is -1; want 1 or more, ax.NoLimit, or 0 for 64`,
		`ax: Config.Retry.Max is -1; want 1 or more, or 0 for 2; for no retries leave the Retry nil or set NoRetry`,
		`ax: Config.Lanes[1].Rate[0].Limit is -3; want at least 1, or ax.Unlimited() for no rate`,
		`ax: Config.Lanes[1].QueueTimeout is -1s; want more than 0, ax.NoTimeout for none, or 0 to inherit`,
	}, "\n"))
}

func TestPoliciesElsewhere(t *testing.T) {
	require.Empty(t, (*Retry)(nil).validate("Request.Retry"))
	require.Empty(t, (*Fallback)(nil).validate("Request.Fallback"))
	require.Empty(t, (*Hedge)(nil).validate("Request.Hedge"))
	require.EqualError(t, (&Hedge{After: -1}).validate("Request.Hedge")[0],
		"Request.Hedge.After is -1ns; want more than 0, or 0 for the lane's p95")
	require.EqualError(t, Limits{MaxQueue: -1}.validate("Limits")[0],
		"Limits.MaxQueue is -1; want 1 or more, ax.NoLimit, or 0 to keep it")
	require.EqualError(t, Limits{Rate: []Rate{{}}}.validate("")[0],
		"Rate[0].Limit is 0; want at least 1, or ax.Unlimited() for no rate")
	require.EqualError(t, errClientAndExecutor,
		"ax: Config.Executor is set beside a client; pass a nil client, or wrap ax.HTTPExecutor(client) in the Executor")
}

func TestEnumNames(t *testing.T) {
	require.Equal(t, "evict", OverflowEvict.String())
	require.Equal(t, "equal", EqualJitter.String())
	require.Equal(t, "hold", OpenHold.String())
	require.Equal(t, "fallback", OverFallback.String())
	require.Equal(t, "stale", FromStale.String())
	require.Equal(t, "half-open", BreakerHalfOpen.String())
	require.Equal(t, "Jitter(-1)", Jitter(-1).String())
	seen := make(map[string]bool)
	for k := EventSubmitted; k <= EventBreakerRamping; k++ {
		require.NotContains(t, k.String(), "EventKind")
		seen[k.String()] = true
	}
	require.Len(t, seen, int(EventBreakerRamping)+1)
	require.Equal(t, "rejected", EventRejected.String())
	require.Equal(t, "EventKind(19)", (EventBreakerRamping + 1).String())
}

func TestFallbackCycles(t *testing.T) {
	to := func(lane string, own *Fallback, off bool) *Fallback {
		return &Fallback{Alternate: &Task{r: Request{Lane: lane, Fallback: own, NoFallback: off}}}
	}
	const cycle = ".Fallback.Alternate falls back to itself through what it inherits; set NoFallback, or another Fallback, in its Request"
	for _, tt := range []struct {
		name string
		c    Config
		want []string // paths
	}{
		{"none", Config{}, nil},
		{"of hosts", Config{Hosts: &Lane{Fallback: to("", nil, false)}}, []string{"Config.Hosts"}},
		{"inherited by all", Config{Fallback: to("x", nil, false)}, []string{"Config"}},
		{"switched off in the task", Config{Fallback: to("x", nil, true)}, nil},
		{"switched off in the lane", Config{Fallback: to("a", nil, false), Lanes: []Lane{{Name: "a", NoFallback: true}}}, nil},
		{"of its own", Config{Fallback: to("x", staticFallback(), false)}, nil},
		{"its own leads back", Config{Fallback: to("x", to("y", nil, false), false)}, []string{"Config"}},
		{"in turn", Config{Lanes: []Lane{{Name: "a", Fallback: to("b", nil, false)}, {Name: "b", Fallback: to("a", nil, false)}}},
			[]string{"Config.Lanes[0]", "Config.Lanes[1]"}},
		{"outside of a cycle", Config{Lanes: []Lane{{Name: "a", Fallback: to("b", nil, false)}, {Name: "b", Fallback: to("b", nil, false)}}},
			[]string{"Config.Lanes[1]"}},
		{"a chain", Config{Lanes: []Lane{{Name: "a", Fallback: to("b", nil, false)}, {Name: "b", Fallback: to("c", nil, false)}}}, nil},
	} {
		err := validateFallbacks(&tt.c, func(task *Task) *Lane {
			for i := range tt.c.Lanes {
				if tt.c.Lanes[i].Name == task.r.Lane {
					return &tt.c.Lanes[i]
				}
			}
			return tt.c.Hosts
		})
		if tt.want == nil {
			require.NoError(t, err, tt.name)
			continue
		}
		require.EqualError(t, err, "ax: "+strings.Join(tt.want, cycle+"\nax: ")+cycle, tt.name)
	}
}
