package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine describes where the numbers come from.
func machine() string {
	return fmt.Sprintf("%s, %d processors used of %d, %s/%s, %s",
		processor(), runtime.GOMAXPROCS(0), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// processor is the CPU's name where the system tells it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// peers are the modules that the contestants are made of.
func peers() []string {
	return []string{
		"github.com/failsafe-go/failsafe-go", "github.com/gojek/heimdall/v7", "github.com/hashicorp/go-retryablehttp",
		"github.com/sony/gobreaker/v2", "go.uber.org/ratelimit", "golang.org/x/sync", "golang.org/x/time", "resty.dev/v3",
	}
}

// versions are the peers' as built into this binary.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	built := map[string]string{}
	for _, m := range info.Deps {
		built[m.Path] = m.Version
	}
	var all []string
	for _, path := range peers() {
		if v := built[path]; v != "" {
			all = append(all, path+" "+v)
		}
	}
	return all
}
