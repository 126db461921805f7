package bench

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// serveLoopback answers on a port of the loopback interface, whose URL it
// prints, until standard input ends.
func serveLoopback() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: loopbackHandler(), ReadHeaderTimeout: time.Minute}
	go func() { // ends the server, and so the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Close()
	}()
	fmt.Printf("http://%s\n", l.Addr())
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// loopbackHandler answers 1 KiB, after the delay that the query asks for.
func loopbackHandler() http.Handler {
	body := bytes.Repeat([]byte("x"), 1024)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ms, err := strconv.Atoi(r.URL.Query().Get("ms")); err == nil {
			select {
			case <-time.After(time.Duration(ms) * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(body) // a client that has gone needs no answer
	})
}
