package axredis

import "strconv"

// keySpace names the keys of one fleet. The script touches all keys of a lane at
// once, so they carry one hash tag and live in one slot of a Redis Cluster: each
// lane's own, or, if "" has limits and every start must be counted in one place
// anyway, one for all lanes.
type keySpace struct {
	prefix string
	shared bool // "" has limits
}

// tag begins a lane's keys, with their hash tag. What follows it tells a prefix with
// a colon from a lane of another prefix.
func (k keySpace) tag(lane string) string {
	if k.shared {
		return "{" + k.prefix + "}:all"
	}
	return "{" + k.prefix + ":" + lane + "}"
}

// pause is not versioned: a server's wish holds for every configuration, as far as
// they agree about the tag. It is one of the script's keys and cannot leave it.
func (k keySpace) pause(lane string) string { return k.tag(lane) + ":pause:" + lane }

// scope is where a scope is counted for a lane, leases first, then the waiters'
// ranks and when they expire, then a key for each of n rates.
func (k keySpace) scope(lane, scope, version string, n int) []string {
	kinds := [...]string{":leases:", ":ranks:", ":waiters:"}
	keys := make([]string, 0, len(kinds)+n)
	for _, kind := range kinds {
		keys = append(keys, k.tag(lane)+kind+version+":"+scope)
	}
	for i := range n {
		keys = append(keys, k.tag(lane)+":rate"+strconv.Itoa(i)+":"+version+":"+scope)
	}
	return keys
}

// versions is where the versions of a scope meet. It has a slot of its own, so
// that versions that disagree about the slots of the others meet as well.
func (k keySpace) versions(scope string) string {
	return "{" + k.prefix + ":" + scope + "}:versions:" + scope
}

// probe are the keys of a step that changes nothing for anybody, in the slot of a
// lane's.
func (k keySpace) probe(lane string) []string {
	return append([]string{k.tag(lane) + ":probe"}, k.scope(lane, "", "probe", 0)...)
}
