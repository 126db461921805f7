package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// childEnv names the role of a process that a report has started.
const childEnv = "AX_BENCH_CHILD"

// ServeChild does the work of a process that Run has started for a part of its
// own, and reports whether this is one: then there is nothing left to do. It is
// to be called first in main, or in TestMain, of a binary that calls Run.
func ServeChild() bool {
	role := os.Getenv(childEnv)
	if role == "" {
		return false
	}
	if err := serve(role); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
	return true
}

// serve does what role asks for: its first word is a name, the rest its JSON.
func serve(role string) error {
	name, arg, _ := strings.Cut(role, " ")
	var out any
	var err error
	switch name {
	case "server":
		return serveLoopback()
	case "waiters":
		out, err = withArg(arg, measureWaiters)
	case "abandoned":
		out, err = withArg(arg, measureAbandoned)
	default:
		return errors.New("bench: unknown role")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func withArg[A any](arg string, f func(A) (reading, error)) (reading, error) {
	var a A
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return nil, err
	}
	return f(a)
}

// child is a command that runs this binary in a role.
func child(name string, arg any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+name+" "+string(raw), fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0)))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// measureInChild has a fresh process measure.
func measureInChild(name string, arg any) (reading, error) {
	cmd, err := child(name, arg)
	if err != nil {
		return nil, err
	}
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var r reading
	return r, json.Unmarshal(raw, &r)
}

// childServer is a loopback server in a process of its own.
type childServer struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer // closing it ends the process
}

func startServer() (*childServer, error) {
	cmd, err := child("server", nil)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &childServer{cmd: cmd, stdin: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

// stop ends the server and waits for it.
func (s *childServer) stop() error { return errors.Join(s.stdin.Close(), s.cmd.Wait()) }
