package axdebug_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
)

// The page belongs beside the other debug handlers, on a listener that only
// those can reach who may see it.
func ExampleHandler() {
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	debug := http.NewServeMux()
	debug.Handle("/debug/ax/", axdebug.Handler(sched))

	w := httptest.NewRecorder()
	debug.ServeHTTP(w, httptest.NewRequest("GET", "/debug/ax/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}

// Buttons that pause and resume lanes are added on request.
func ExampleHandlerWith() {
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	page := axdebug.HandlerWith(sched, axdebug.Options{Title: "checkout", Control: true, Record: true})
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("POST", "/pause", nil))
	fmt.Println(w.Code, w.Body.String())
	// Output: 400 The form must name a lane; an empty name is all of them.
}
