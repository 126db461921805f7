package ax

import (
	"cmp"
	"time"
)

// validateLanes reports what is wrong with the lanes of c, the template for
// hosts and the breakers that apply in them, all spelled below path.
func validateLanes(path string, c *Config) []error {
	var f configFaults
	f.probes(dot(path, "Breaker"), c.Breaker, dot(path, "MaxConcurrent"), cmp.Or(c.MaxConcurrent, defaultMaxConcurrent))
	named := make(map[string]string, len(c.Lanes)) // name -> path of its lane
	for i, l := range c.Lanes {
		at := dot(path, elem("Lanes", i))
		f = append(f, l.validate(at, c)...)
		name := l.name()
		switch first, taken := named[name]; {
		case name == "":
			f.add(dot(at, "Name"), "is empty and so is Match, so nothing could ever use this lane; set one")
		case taken:
			f.add(dot(at, "Name"), "is %q, as is that of %s; lanes need different names", name, first)
		default:
			named[name] = at
		}
	}
	f = append(f, validateMatches(path, c.Lanes)...)
	if c.Hosts == nil {
		return f
	}
	at := dot(path, "Hosts")
	if c.Hosts.Name != "" {
		f.add(dot(at, "Name"), "is %q; a template has none, each lane is named by its host", c.Hosts.Name)
	}
	if len(c.Hosts.Match) > 0 {
		f.add(dot(at, "Match"), "is %q; a template has none, it is for every host outside Lanes", c.Hosts.Match)
	}
	return append(f, c.Hosts.validate(at, c)...)
}

// validate reports what is wrong with l by itself and beside what it inherits
// from c, its fields spelled below path.
func (l Lane) validate(path string, c *Config) []error {
	var f configFaults
	notNegative(&f, path, "MaxConcurrent", l.MaxConcurrent, "want 1 or more, or 0 for no limit of its own")
	notNegative(&f, path, "MaxQueue", l.MaxQueue, "want 1 or more, or 0 for no limit of its own")
	f.rates(path, l.Rate)
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"AttemptTimeout", l.AttemptTimeout},
		{"IdleTimeout", l.IdleTimeout},
		{"QueueTimeout", l.QueueTimeout},
		{"MinRemaining", l.MinRemaining},
	} {
		notNegative(&f, path, d.field, d.value, "want more than 0, ax.NoTimeout for none, or 0 to inherit")
	}
	notNegative(&f, path, "AgingStep", l.AgingStep, "want more than 0, or 0 to inherit")
	f.switchedOff(path, "Retry", l.NoRetry, l.Retry != nil)
	f.switchedOff(path, "Breaker", l.NoBreaker, l.Breaker != nil)
	f.switchedOff(path, "Fallback", l.NoFallback, l.Fallback != nil)
	f = append(f, l.Retry.validate(dot(path, "Retry"))...)
	f = append(f, l.Breaker.validate(dot(path, "Breaker"))...)
	f = append(f, l.Fallback.validate(dot(path, "Fallback"))...)
	f = append(f, l.Hedge.validate(dot(path, "Hedge"))...)

	own, limit := dot(path, "Breaker"), dot(path, "MaxConcurrent")
	switch {
	case l.Breaker != nil:
		f.probes(own, l.Breaker, limit, ownLimit(l.MaxConcurrent))
		f.probes(own, l.Breaker, "Config.MaxConcurrent", cmp.Or(c.MaxConcurrent, defaultMaxConcurrent))
	case !l.NoBreaker:
		f.probes("Config.Breaker", c.Breaker, limit, ownLimit(l.MaxConcurrent))
	}
	return f
}

// probes refuses a breaker at path b whose probes do not fit the limit at path
// limitPath; a limit below 1 is none, or a fault of its own.
func (f *configFaults) probes(path string, b *Breaker, limitPath string, limit int) {
	if b != nil && limit >= 1 && b.Probes > limit {
		f.add(dot(path, "Probes"), "is %d, above %s (%d); lower it, or raise the limit", b.Probes, limitPath, limit)
	}
}

// switchedOff refuses a policy that is both set and switched off.
func (f *configFaults) switchedOff(path, policy string, off, set bool) {
	if off && set {
		f.add(dot(path, "No"+policy), "is true beside %s; set one of them", policy)
	}
}

// matchAt is one pattern of a lane and where it was written.
type matchAt struct {
	matchRule
	lane int
	path string
	text string
}

// validateMatches reports patterns that are malformed, and pairs of different
// lanes of which neither is the more specific one for some request.
func validateMatches(path string, lanes []Lane) []error {
	var f configFaults
	byAuthority := make(map[string][]matchAt)
	for i, l := range lanes {
		for j, text := range l.Match {
			at := dot(dot(path, elem("Lanes", i)), elem("Match", j))
			rule, err := parseMatch(text)
			if err != nil {
				f.add(at, "is %q: %v", text, err)
				continue
			}
			m := matchAt{rule, i, at, text}
			for _, o := range byAuthority[rule.authority()] {
				f.conflict(o, m)
			}
			byAuthority[rule.authority()] = append(byAuthority[rule.authority()], m)
		}
	}
	return f
}

// conflict refuses m if it leaves open which of two lanes a request belongs to.
func (f *configFaults) conflict(first, m matchAt) {
	switch {
	case first.lane == m.lane:
	case !first.ambiguous(m.matchRule):
	case first.samePath(m.matchRule):
		f.add(m.path, "is %q, the same as %s; a pattern belongs to one lane", m.text, first.path)
	default:
		f.add(m.path, "is %q, which conflicts with %s (%q): both match some request and neither is more specific; narrow one of them, or put both in one lane",
			m.text, first.path, first.text)
	}
}

// validateFallbacks reports the fallbacks of c whose Alternate, by what it
// inherits in its lane, would in the end be sent in place of itself. laneOf
// finds the lane of c that a task goes to: Hosts for an unlisted host, nil
// without that template. Fallbacks of requests need no such look: a task is
// built after its alternates, so only inheritance can close a circle.
func validateFallbacks(c *Config, laneOf func(*Task) *Lane) error {
	next := func(t *Task) *Fallback {
		switch l := laneOf(t); {
		case t.r.NoFallback:
			return nil
		case t.r.Fallback != nil:
			return t.r.Fallback
		case l == nil:
			return c.Fallback
		default:
			return inherit(l.Fallback, c.Fallback, l.NoFallback)
		}
	}
	var f configFaults
	check := func(path string, origin *Fallback) {
		seen := make(map[*Fallback]bool)
		for cur := origin; cur != nil && cur.Alternate != nil && !seen[cur]; {
			seen[cur] = true
			if cur = next(cur.Alternate); cur == origin {
				f.add(dot(path, "Fallback.Alternate"),
					"falls back to itself through what it inherits; set NoFallback, or another Fallback, in its Request")
			}
		}
	}
	check("Config", c.Fallback)
	for i, l := range c.Lanes {
		check(dot("Config", elem("Lanes", i)), l.Fallback)
	}
	if c.Hosts != nil {
		check("Config.Hosts", c.Hosts.Fallback)
	}
	return invalid(f)
}
