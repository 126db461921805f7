// Package migrate_test is the code of the README that leads from other
// libraries to ax: each pair of examples does the same work twice.
package migrate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// flaky fails the first time it is asked, and answers "ok" from then on.
func flaky() *httptest.Server {
	var asked atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok")
	}))
}

// steady always answers "ok".
func steady() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
}
