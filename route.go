package ax

import (
	"net/http"
	"net/url"
	"strings"
)

// routes finds the configured lane of a method and URL. Among paths
// http.ServeMux decides what is most specific. A host with a port comes before
// one without, and a narrower path before a narrower method, so there is a mux
// for every port and method: it knows the patterns of that method and those of
// any.
type routes struct {
	muxes map[routeKey]*http.ServeMux
	lanes map[routeKey]map[string]string // pattern as registered → lane
}

type routeKey struct{ port, method string }

// newRoutes registers patterns that have been validated.
func newRoutes(lanes []Lane) *routes {
	r := &routes{muxes: make(map[routeKey]*http.ServeMux), lanes: make(map[routeKey]map[string]string)}
	type route struct {
		matchRule
		lane string
	}
	var all []route
	methods := map[string]bool{"": true}
	for i := range lanes {
		for _, p := range lanes[i].Match {
			rule, err := parseMatch(p)
			if err != nil {
				panic("ax: unvalidated pattern: " + err.Error())
			}
			all = append(all, route{rule, lanes[i].Name})
			methods[rule.method] = true
		}
	}
	if methods[http.MethodGet] {
		methods[http.MethodHead] = true // as ServeMux has it
	}
	for method := range methods {
		for _, own := range []bool{true, false} { // a method's own patterns before those of any
			for _, rt := range all {
				meets := rt.method == method || rt.method == http.MethodGet && method == http.MethodHead
				if own && meets || !own && rt.method == "" {
					r.add(routeKey{rt.port, method}, rt.host+rt.path, rt.lane)
				}
			}
		}
	}
	return r
}

// add registers a pattern, unless a better one of the same host and path is
// there.
func (r *routes) add(k routeKey, pattern, lane string) {
	if r.muxes[k] == nil {
		r.muxes[k], r.lanes[k] = http.NewServeMux(), make(map[string]string)
	}
	if _, ok := r.lanes[k][pattern]; ok {
		return
	}
	r.lanes[k][pattern] = lane
	r.muxes[k].Handle(pattern, http.NotFoundHandler())
}

// find is the name of the lane of a request, "" if none is configured for it.
func (r *routes) find(method string, u *url.URL) string {
	if len(r.muxes) == 0 {
		return ""
	}
	host, port := splitHostPort(canonicalAuthority(u.Scheme, u.Host))
	if port == "" {
		port = defaultPorts(u.Scheme)
	}
	probe := &http.Request{Method: http.MethodGet, Host: host, URL: &url.URL{Path: u.Path, RawPath: u.RawPath}}
	if probe.URL.Path == "" {
		probe.URL.Path = "/"
	}
	for _, p := range [...]string{port, ""} {
		k := routeKey{p, method}
		if r.muxes[k] == nil {
			k.method = ""
		}
		if mux := r.muxes[k]; mux != nil {
			if _, pattern := mux.Handler(probe); pattern != "" {
				return r.lanes[k][pattern]
			}
		}
	}
	return ""
}

// splitHostPort parts a canonical authority; an IPv6 address keeps its brackets.
func splitHostPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.HasSuffix(authority, "]") {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// defaultPorts is the port of a URL that names none.
func defaultPorts(scheme string) string {
	switch strings.ToLower(scheme) {
	case "http", "ws":
		return "80"
	case "https", "wss":
		return "443"
	}
	return ""
}

// laneLocked is the lane of a task: the one it names, else by pattern, else its
// host's own.
func (s *Scheduler) laneLocked(t *Task, named string) (*lane, error) {
	if named != "" {
		return s.namedLaneLocked(named)
	}
	l := t.route.Load()
	if l == nil || l.s != s || l.gone {
		l = s.routeLocked(t.Method(), t.u, t.authority)
		t.route.Store(l)
	}
	return l, nil
}

// knownLane is the lane of a task that names none, found without the mutex and
// remembered in the task; nil if only the mutex knows it. It may be gone.
func (s *Scheduler) knownLane(t *Task) *lane {
	if l := t.route.Load(); l != nil && l.s == s {
		return l
	}
	var l *lane
	if name := s.routes.find(t.Method(), t.u); name != "" {
		l = s.listed[name]
	} else if known, ok := s.hosts.Load(t.authority); ok {
		l = known.(*lane)
	}
	if l != nil {
		t.route.Store(l)
	}
	return l
}

// routeAhead finds a task's lane before the mutex is taken: patterns take time.
func (s *Scheduler) routeAhead(t *Task, want *Hints) {
	if want.Lane == "" {
		s.knownLane(t)
	}
}

// routeLocked is the lane of a method and URL.
func (s *Scheduler) routeLocked(method string, u *url.URL, authority string) *lane {
	if name := s.routes.find(method, u); name != "" {
		return s.lanes.get(name)
	}
	return s.hostLaneLocked(authority)
}

// hostLaneLocked is the lane of a host, made by the template if it is new.
func (s *Scheduler) hostLaneLocked(authority string) *lane {
	if l := s.lanes.get(authority); l != nil {
		return l
	}
	l := newLane(s, authority, s.host, false)
	s.lanes.set(authority, l)
	s.hosts.Store(authority, l)
	s.fixLaneLocked(l, s.now())
	return l
}

// dropLaneLocked forgets an idle lane; what it counted stays counted. Whoever
// comes next finds a closed breaker, which is told where it is news.
func (s *Scheduler) dropLaneLocked(l *lane, now instant) {
	if l.brk != nil && l.brk.state() != BreakerClosed {
		s.laneEventLocked(l.name, Event{Kind: EventBreakerClosed}, now)
	}
	s.setAlarmLocked(&l.alarm, l, never)
	s.lanes.remove(l.name)
	s.hosts.Delete(l.name)
	done := l.swift.done.Load()
	s.count.succeeded.Add(done)
	s.count.attempts.Add(done)
}

// isAuthority tells whether a lane name can be that of a host: it has a dot or a
// port, or is localhost.
func isAuthority(name string) bool {
	host, port := splitHostPort(name)
	return host != "" && !strings.ContainsAny(name, "/ ") &&
		(port != "" || strings.Contains(host, ".") || strings.HasPrefix(host, "[") || strings.EqualFold(host, "localhost"))
}

// laneConfig is the configured lane that a task goes to; Hosts for an unlisted
// host.
func (s *Scheduler) laneConfig(t *Task) *Lane {
	name := t.r.Lane
	if name == "" {
		name = s.routes.find(t.Method(), t.u)
	}
	for i := range s.cfg.Lanes {
		if l := &s.cfg.Lanes[i]; l.Name == name {
			return l
		}
	}
	return s.cfg.Hosts
}
