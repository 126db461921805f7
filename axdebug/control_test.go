package axdebug_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

var lanes = ax.Config{Lanes: []ax.Lane{{Name: "api", Match: []string{"api.example"}}}}

func TestControlIsOffByDefault(t *testing.T) {
	bubble(t, lanes, axdebug.Options{}, func(t *tester) {
		page := t.Ask("GET", "/").Body.String()
		require.NotContains(t, page, "<button>Pause")
		require.NotContains(t, page, "data-control")
		for _, target := range []string{"/pause", "/resume"} {
			require.Equal(t, http.StatusNotFound, t.Ask("GET", target).Code)
			w := t.post(target, "api")
			require.Equal(t, http.StatusMethodNotAllowed, w.Code)
			require.Equal(t, "Nothing can be changed here: axdebug.Options.Control is off.\n", w.Body.String())
		}
		require.False(t, t.S.Stats().Lanes["api"].Paused)
	})
}

func TestControlPausesAndResumes(t *testing.T) {
	bubble(t, lanes, axdebug.Options{Control: true}, func(t *tester) {
		require.Contains(t, t.Ask("GET", "/").Body.String(), `aria-label="Pause lane api"`)
		require.Equal(t, http.StatusNoContent, t.post("/pause", "api").Code)
		require.True(t, t.S.Stats().Lanes["api"].Paused)
		require.Contains(t, t.Page("/"), "Lane api is paused until it is resumed.")
		require.Contains(t, t.Ask("GET", "/").Body.String(), `aria-label="Resume lane api"`)
		require.Equal(t, http.StatusNoContent, t.post("/resume", "api").Code)
		require.False(t, t.S.Stats().Lanes["api"].Paused)

		require.Equal(t, http.StatusNoContent, t.post("/pause", "").Code)
		require.True(t, t.S.Stats().Lanes["api"].Paused, "an empty name is all of them")
		require.Regexp(t, `lane-paused .*all lanes`, t.Page("/"))
		require.Equal(t, http.StatusNoContent, t.post("/resume", "").Code)
		require.False(t, t.S.Stats().Lanes["api"].Paused)
	})
}

func TestControlSendsAFormBackToThePage(t *testing.T) {
	bubble(t, lanes, axdebug.Options{Control: true}, func(t *tester) {
		w := t.post("/debug/pause", "api", "Accept", "text/html", "Sec-Fetch-Site", "same-origin")
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "./", w.Header().Get("Location"))
	})
}

func TestControlRefusesOtherSites(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		want   int
	}{
		"same origin":             {[]string{"Sec-Fetch-Site", "same-origin"}, http.StatusNoContent},
		"cross site":              {[]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"same site":               {[]string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"old browser":             {[]string{"Origin", "http://example.com"}, http.StatusNoContent}, // httptest's Host
		"old browser, other site": {[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"old browser, no origin":  {[]string{"Origin", "null"}, http.StatusForbidden},
		"no browser":              {nil, http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, lanes, axdebug.Options{Control: true}, func(t *tester) {
				require.Equal(t, tt.want, t.post("/pause", "api", tt.header...).Code)
				require.Equal(t, tt.want == http.StatusNoContent, t.S.Stats().Lanes["api"].Paused)
			})
		})
	}
}

// A page of another site whose name was made to lead here is of the same origin.
func TestControlRefusesOtherNames(t *testing.T) {
	const loopback, elsewhere = "127.0.0.1:5000", "192.0.2.1:5000"
	for _, tt := range []struct {
		host, remote string
		hosts        []string
		want         int
	}{
		{"evil.example:6060", loopback, nil, http.StatusForbidden},
		{"evil.example", "[::1]:5000", nil, http.StatusForbidden},
		{"evil.example", "[::ffff:127.0.0.1]:5000", nil, http.StatusForbidden},
		{"localhost:6060", loopback, nil, http.StatusNoContent},
		{"LOCALHOST.", loopback, nil, http.StatusNoContent},
		{"127.0.0.1:6060", loopback, nil, http.StatusNoContent},
		{"[::1]:6060", "[::1]:5000", nil, http.StatusNoContent},
		{"[::1]", "[::1]:5000", nil, http.StatusNoContent},
		{"debug.corp.example", elsewhere, nil, http.StatusNoContent},
		{"debug.corp.example", "@", nil, http.StatusNoContent}, // a Unix socket
		{"debug.corp.example", loopback, []string{"debug.corp.example"}, http.StatusNoContent},
		{"Debug.corp.example:443", elsewhere, []string{"debug.corp.example"}, http.StatusNoContent},
		{"evil.example", elsewhere, []string{"debug.corp.example"}, http.StatusForbidden},
		{"evil.example", elsewhere, []string{}, http.StatusForbidden},
		{"10.0.0.7:6060", elsewhere, []string{"debug.corp.example"}, http.StatusNoContent},
	} {
		t.Run(tt.host+" from "+tt.remote, func(t *testing.T) {
			bubble(t, lanes, axdebug.Options{Control: true, Hosts: tt.hosts}, func(t *tester) {
				r := httptest.NewRequest("POST", "/pause", strings.NewReader("lane=api"))
				r.Host, r.RemoteAddr = tt.host, tt.remote
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("Origin", "http://"+tt.host)
				w := httptest.NewRecorder()
				t.H.ServeHTTP(w, r)
				require.Equal(t, tt.want, w.Code, w.Body)
				require.Equal(t, tt.want == http.StatusNoContent, t.S.Stats().Lanes["api"].Paused)
				if tt.want == http.StatusForbidden {
					require.Contains(t, w.Body.String(), "axdebug.Options.Hosts")
				}
			})
		})
	}
}

func TestControlRefusesWhatItCannotRead(t *testing.T) {
	bubble(t, lanes, axdebug.Options{Control: true}, func(t *tester) {
		w := t.Ask("GET", "/pause?lane=api")
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "POST", w.Header().Get("Allow"))

		w = t.post("/pause", "nosuchlane")
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), "The scheduler refused: ")
		require.Contains(t, w.Body.String(), "nosuchlane")

		r := httptest.NewRequest("POST", "/pause?lane=api", strings.NewReader("")) // the address alone names none
		rec := httptest.NewRecorder()
		t.H.ServeHTTP(rec, r)
		require.Equal(t, http.StatusBadRequest, rec.Code)

		require.Equal(t, http.StatusBadRequest, t.post("/pause", strings.Repeat("x", 9000)).Code)
		require.False(t, t.S.Stats().Lanes["api"].Paused)
	})
}
