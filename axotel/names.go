package axotel

import "sync"

// maxNames is how many lanes, and how many owners, metrics tell apart.
const maxNames = 256

// otherName stands for all names beyond those.
const otherName = "_other"

// names keeps the cardinality of one attribute low: the first maxNames values
// are themselves, and those that the Config names; all others are one.
type names struct {
	named map[string]struct{} // by the Config; not changed any more
	mu    sync.RWMutex
	seen  map[string]struct{}
}

// name has a value be itself, whenever it comes.
func (n *names) name(name string) {
	if n.named == nil {
		n.named = make(map[string]struct{})
	}
	n.named[name] = struct{}{}
}

func (n *names) bounded(name string) string {
	if _, ok := n.named[name]; ok {
		return name
	}
	n.mu.RLock()
	_, known := n.seen[name]
	full := len(n.seen) >= maxNames
	n.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return otherName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = make(map[string]struct{})
	}
	if _, known := n.seen[name]; !known && len(n.seen) >= maxNames {
		return otherName
	}
	n.seen[name] = struct{}{}
	return name
}
