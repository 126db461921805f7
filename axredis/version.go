package axredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/axsched/ax"
)

const (
	// versionFor is how long a version is remembered after it was last told.
	versionFor = time.Minute
	// versionEvery is how often it is told, and how often others are warned of.
	versionEvery = 10 * time.Second
)

// tellLanes adds to what s, which is that of "", tells: which lanes have limits of
// their own. A process without an entry for a lane counts its starts in "" alone,
// and has no scope to tell so for the lane.
func (s *scope) tellLanes(lanes map[string]ax.Limits) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", slices.Sorted(maps.Keys(lanes))))
	s.told += "/" + hex.EncodeToString(sum[:4])
}

// difference is what is wrong with other, which is not what s tells.
func (s *scope) difference(other string) string {
	if version, _, _ := strings.Cut(other, "/"); version == s.version {
		return "axredis: processes of this fleet have limits for other lanes, which bind only those who have them"
	}
	return "axredis: processes of this fleet have other limits, each version is counted for itself"
}

// announceLocked tells Redis now and then which limits this process runs, and
// logs those of others: while a deployment rolls out, each version is counted for
// itself, and the fleet may do the sum of both.
func (g *Governor) announceLocked(l *line, now time.Time) {
	if l.health.down || g.closed {
		return
	}
	for _, s := range l.scopes {
		if g.scopes[s.name] != s || !s.announced.IsZero() && now.Sub(s.announced) < versionEvery {
			continue
		}
		s.announced = now
		g.work.Add(1)
		go g.announce(s) // ends within Timeout; Close waits for it
	}
}

// announce tells the version of s and warns, once a minute, of each other one.
func (g *Governor) announce(s *scope) {
	defer g.work.Done()
	g.store.crowd.enter()
	reply, err := g.store.run(g.store.version, []string{g.keys.versions(s.name)}, []any{s.told, micros(versionFor)})
	g.store.crowd.leave(true, err)
	if err != nil {
		return // the next one tells it
	}
	now := time.Now()
	for _, v := range reply {
		other, _ := v.(string)
		g.mu.Lock()
		again := now.Sub(s.warned[other]) < versionFor
		if !again {
			maps.DeleteFunc(s.warned, func(_ string, t time.Time) bool { return now.Sub(t) >= versionFor })
			s.warned[other] = now
		}
		g.mu.Unlock()
		if !again {
			g.cfg.Logger.Warn(s.difference(other), "lane", s.name, "version", s.told, "other", other)
		}
	}
}
