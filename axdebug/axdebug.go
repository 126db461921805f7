// Package axdebug shows what a scheduler is doing: a live page for people, the
// same numbers as JSON, and its events as a stream.
//
//	mux.Handle("/debug/ax/", axdebug.Handler(sched))
//
// It serves, below any prefix and with or without [http.StripPrefix]:
//
//	/            the page; its numbers need no JavaScript
//	/stats.json  a snapshot, as [ax.Scheduler.Stats] takes it, with what waits and the advice
//	/events      server-sent events: one JSON object for each event of tasks submitted since
//	/live        server-sent events: the page's content, once a second
//	/pause       POST lane=NAME, with [Options.Control] only; an empty lane is all of them
//	/resume      likewise
//
// Pages and streams show no user info, query values, headers or bodies. They do
// show hosts, paths, lanes and owners, and the handler does not authenticate
// anybody: bind it to loopback, or put your own authentication in front of it.
//
// While nobody looks it does nothing and keeps nothing, unless [Options.Record]
// says otherwise; the first look starts the recording, which goes on for five
// minutes after the last. An open stream ends with its request, which
// [http.Server.Shutdown] waits for: cancel the requests' base context, or Close.
package axdebug

import (
	"net/http"
	"slices"
	"strings"

	"github.com/axsched/ax"
)

// Options say what a [HandlerWith] shows and allows. The zero value only looks.
type Options struct {
	// Title heads the page, to tell several schedulers apart; "" = "ax".
	Title string
	// Control adds buttons that pause and resume lanes. Browsers can do so from
	// the page's own origin only, as [http.CrossOriginProtection] judges it;
	// programs that reach the handler can. False: nothing can be changed
	// through the handler.
	Control bool
	// Hosts are the names, without port, under which Control may be reached beside
	// localhost and IP addresses: a page of another site can point its own name at
	// this machine, and is then of the same origin. nil = over loopback none, from
	// elsewhere any; behind a proxy on this machine that passes the Host on, name it.
	Hosts []string
	// Record keeps the latest events and the chart also while nobody looks, so
	// that who comes late sees what led to it. It costs about a microsecond an
	// event and a Stats a second while there is work.
	Record bool
}

// Handler shows s and changes nothing. It is safe for concurrent use; s may be
// closed before, and must not be nil.
func Handler(s *ax.Scheduler) http.Handler { return HandlerWith(s, Options{}) }

// HandlerWith is Handler with options.
func HandlerWith(s *ax.Scheduler, o Options) http.Handler {
	o.Hosts = slices.Clone(o.Hosts)
	if o.Title == "" {
		o.Title = "ax"
	}
	return &handler{
		s:      s,
		opts:   o,
		rec:    newRecorder(s, o.Record),
		pages:  parsePages(),
		assets: loadAssets(),
		origin: http.NewCrossOriginProtection(),
	}
}

// handler routes by the last element of the path, so that it need not know where
// it is mounted; all links of the page are relative.
type handler struct {
	s      *ax.Scheduler
	opts   Options
	rec    *recorder
	pages  *pages
	assets map[string]asset
	origin *http.CrossOriginProtection
	live   renderings
}

// contentPolicy lets the page load nothing but its own files, and nobody frame
// it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hd := w.Header()
	hd.Set("Content-Security-Policy", contentPolicy)
	hd.Set("X-Content-Type-Options", "nosniff")
	hd.Set("Referrer-Policy", "same-origin")
	hd.Set("Cross-Origin-Resource-Policy", "same-origin")
	hd.Set("Cache-Control", "no-store")

	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if name == "pause" || name == "resume" {
		h.serveControl(w, r, name)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		hd.Set("Allow", "GET, HEAD")
		h.fail(w, r, http.StatusMethodNotAllowed, "Only GET and HEAD are understood here.")
		return
	}
	switch name {
	case "":
		h.servePage(w, r)
	case "stats.json":
		h.serveStats(w)
	case "events":
		h.serveEvents(w, r)
	case "live":
		h.serveLive(w, r)
	default:
		if a, ok := h.assets[name]; ok {
			a.serve(w, r)
			return
		}
		h.fail(w, r, http.StatusNotFound, noSuchPage)
	}
}

const noSuchPage = "There is no such page. The one to look at ends in a slash, " +
	"as does the pattern that the handler is mounted at."

// fail answers with a page for people and with a line for programs.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	if !wantsPage(r) {
		http.Error(w, why, status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	h.pages.problem(w, h.opts.Title, status, why) // the status is sent: nothing is left to do on failure
}

// wantsPage tells a browser that navigates from a program or a script.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}
