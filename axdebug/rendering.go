package axdebug

import (
	"sync"
	"time"
)

// renderings are the pages that /live shows, one for all readers with the same
// filter. The zero value is ready.
type renderings struct {
	mu  sync.Mutex
	all map[filter]*rendering
}

// rendering is the latest page of one filter.
type rendering struct {
	filter  filter
	readers int // guarded by the mutex of all

	mu   sync.Mutex // held while it is made: who comes meanwhile wants it too
	at   time.Time
	text []byte // not changed any more
}

// join is the rendering of f for one more reader, until he leaves.
func (rs *renderings) join(f filter) (page *rendering, leave func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	page = rs.all[f]
	if page == nil {
		if rs.all == nil {
			rs.all = make(map[filter]*rendering)
		}
		page = &rendering{filter: f}
		rs.all[f] = page
	}
	page.readers++
	return page, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if page.readers--; page.readers == 0 {
			delete(rs.all, f)
		}
	}
}

// since is the page if it is not older than that, else a new one.
func (p *rendering) since(oldest time.Time, render func(filter) []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil || p.at.Before(oldest) {
		p.at = time.Now()
		p.text = render(p.filter)
	}
	return p.text
}
