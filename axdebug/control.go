package axdebug

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxForm bounds what is read of a control's form, in bytes: a lane's name.
const maxForm = 8 << 10

// serveControl pauses or resumes one lane, or all. A form of the page is sent
// back to it, a program gets 204.
func (h *handler) serveControl(w http.ResponseWriter, r *http.Request, verb string) {
	if !h.opts.Control {
		status := http.StatusNotFound
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			status = http.StatusMethodNotAllowed
		}
		h.fail(w, r, status, "Nothing can be changed here: axdebug.Options.Control is off.")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		h.fail(w, r, http.StatusMethodNotAllowed, "Lanes are paused and resumed by POST.")
		return
	}
	if err := h.origin.Check(r); err != nil {
		h.fail(w, r, http.StatusForbidden, "The request came from another site and was not followed.")
		return
	}
	if !h.known(r) {
		h.fail(w, r, http.StatusForbidden, "The request was not followed: axdebug.Options.Hosts does not list the name that it was sent to.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil || !r.PostForm.Has("lane") {
		h.fail(w, r, http.StatusBadRequest, "The form must name a lane; an empty name is all of them.")
		return
	}
	act := h.s.Pause
	if verb == "resume" {
		act = h.s.Resume
	}
	if err := act(r.PostForm.Get("lane")); err != nil {
		h.fail(w, r, http.StatusBadRequest, "The scheduler refused: "+errorText(err, nil))
		return
	}
	if !wantsPage(r) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// known tells whether a control was sent to a name that is this handler's, and not
// to one of another site that leads here (DNS rebinding). An address is nobody's
// name. Without Options.Hosts only requests over loopback are told apart: who listens
// to others has a name.
func (h *handler) known(r *http.Request) bool {
	if h.opts.Hosts == nil && !overLoopback(r.RemoteAddr) {
		return true
	}
	host := strings.TrimSuffix(hostOf(r.Host), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(h.opts.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// hostOf is a Host header without its port and brackets.
func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return strings.Trim(authority, "[]")
}

func overLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
