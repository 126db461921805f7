package ax

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A key says which tasks are the same. It has a family, what is asked for, and an
// owner, who asks. A derived family is binary:
//
//	'd'  core (32 bytes)  then for each header  name (8 bytes) value (16 bytes)
//
// where core hashes method, URL, Host and body, and the hash of a value covers core
// and name too, so that equal secrets look different in every request. Headers stay
// apart from core in order that a scheduler can leave out those that it ignores,
// and find by a key what was kept without them. A DedupeKey's family is 'k' and
// its hash. As a string, where the family's parts are in base64:
//
//	ax1.core.headers.owner    axk.hash.owner
const (
	derivedKind = "d"
	namedKind   = "k"
	coreSize    = sha256.Size
	nameSize    = 8
	partSize    = nameSize + 16
	ownerSize   = 16

	derivedPrefix = "ax1."
	namedPrefix   = "axk."
)

// dedupeKey is under what a scheduler files a result. Without a family there is none.
type dedupeKey struct {
	family string
	owner  string // hashed, whose cookies go with it, and by which door; "" = nobody in particular
}

// of is k of somebody whom cookies tell apart, unless it is named: that is the caller's
// own word. Through Transport an answer is that of one hop, so it is another.
func (k dedupeKey) of(who string, single bool) dedupeKey {
	if strings.HasPrefix(k.family, derivedKind) {
		k.owner += who
	}
	if single {
		k.owner += "1"
	}
	return k
}

// belongsTo tells whether owner, or somebody in its name, has the key.
func (k dedupeKey) belongsTo(owner string) bool {
	return k.owner == owner || owner != "" && strings.HasPrefix(k.owner, owner)
}

// jarOwner is who the cookies in jar make of a request to u, hashed; "" without any.
func jarOwner(jar http.CookieJar, u *url.URL) string {
	cookies := jar.Cookies(u)
	if len(cookies) == 0 {
		return ""
	}
	var b []byte
	for _, c := range cookies {
		b = appendField(appendField(b, c.Name), c.Value)
	}
	sum := sha256.Sum256(b)
	return string(sum[:ownerSize])
}

// keyParts is a task's key before a scheduler has its say.
type keyParts struct {
	family string
	names  []string // of the headers in family, canonical, in its order
	owner  string   // hashed
}

// headerSet is a set of header names that do not distinguish requests. nil is empty.
type headerSet struct {
	names  map[string]bool
	hashes map[uint64]bool
}

func newHeaderSet(names []string) *headerSet {
	if len(names) == 0 {
		return nil
	}
	s := &headerSet{make(map[string]bool, len(names)), make(map[uint64]bool, len(names))}
	for _, name := range names {
		name = http.CanonicalHeaderKey(name)
		s.names[name] = true
		s.hashes[hashName(name)] = true
	}
	return s
}

// alwaysIgnored are headers that tell about one sending, not about what is asked.
func alwaysIgnored(name string) bool {
	switch name {
	case "User-Agent", "Traceparent", "Tracestate", "Baggage", "X-Request-Id", "Idempotency-Key":
		return true
	}
	return false
}

// Key is the canonical key by which the task shares results with others, or "" if it
// does not: give it to Scheduler.Invalidate. It is opaque and holds no secret in
// clear, and it is the same in every process of this version of ax.
//
// A key is derived for GET and HEAD, and with Dedupe for any method, unless the body
// is from GetBody or can be read only once, or there is Prepare. It covers method,
// URL, Host, body, Owner and every header but User-Agent, Traceparent, Tracestate,
// Baggage, X-Request-Id and Idempotency-Key; the order of query names, of header
// names and of the names in JSON objects makes no difference, nor does white space
// in JSON. A DedupeKey takes the place of all but the Owner. Tasks of different lanes
// share no attempt, whatever their keys; nor do those to whose requests the client of
// New adds different cookies of its Jar, nor one through Transport with one that is
// not, as only the latter follows redirects: no key shows either.
func (t *Task) Key() string {
	if !t.shares() {
		return ""
	}
	p := t.parts()
	b := make([]byte, 0, 256)
	enc := base64.RawURLEncoding
	if kind, rest := p.family[:1], []byte(p.family[1:]); kind == namedKind {
		b = enc.AppendEncode(append(b, namedPrefix...), rest)
	} else {
		b = enc.AppendEncode(append(b, derivedPrefix...), rest[:coreSize])
		b = enc.AppendEncode(append(b, '.'), rest[coreSize:])
	}
	b = enc.AppendEncode(append(b, '.'), []byte(p.owner))
	return string(b)
}

// shares says whether the task takes part in sharing at all.
func (t *Task) shares() bool {
	switch {
	case !t.usable(), t.r.NoDedupe:
		return false
	case t.r.DedupeKey != "":
		return true
	case !t.r.Dedupe && !t.reads():
		return false
	}
	_, ok := t.r.derivable()
	return ok
}

// reads tells a task whose answer is all that it is sent for.
func (t *Task) reads() bool { return t.Method() == http.MethodGet || t.Method() == http.MethodHead }

// sharingKey is the key under which the task shares in a scheduler that ignores the
// given headers, when owner (the task's, else a hinted one) pays. Its family is ""
// if the task does not share.
func (t *Task) sharingKey(ignore *headerSet, owner string) dedupeKey {
	if !t.shares() {
		return dedupeKey{}
	}
	if p := t.keys.Load(); p != nil && ignore == nil && owner == t.r.Owner {
		return dedupeKey{p.family, p.owner} // most, and with little on the stack
	}
	k, _ := t.baseKey(ignore, owner)
	return k
}

// baseKey is the key that tells the task from others, whatever its method and
// whether it shares: for Cooldown and for stale answers. It is false if there is no
// DedupeKey and none can be derived.
func (t *Task) baseKey(ignore *headerSet, owner string) (dedupeKey, bool) {
	if _, ok := t.r.derivable(); !t.usable() || !ok && t.r.DedupeKey == "" {
		return dedupeKey{}, false
	}
	p := t.parts()
	k := dedupeKey{family: p.without(ignore), owner: p.owner}
	if owner != t.r.Owner {
		k.owner = hashOwner(owner)
	}
	return k, true
}

// partsAhead derives the key of a task that may share before the mutex is taken.
func (t *Task) partsAhead(on bool) {
	if t.mayShare(on) && t.shares() || t.r.Cooldown > 0 {
		t.parts()
		t.urlFamily()
	}
}

// parts are derived once: most tasks of a scheduler without Dedupe never need them.
func (t *Task) parts() *keyParts {
	if p := t.keys.Load(); p != nil {
		return p
	}
	return t.newParts()
}

func (t *Task) newParts() *keyParts {
	p := &keyParts{owner: hashOwner(t.r.Owner)}
	if t.r.DedupeKey != "" {
		p.family = rawDedupeKey(t.r.DedupeKey)
	} else {
		p.derive(t)
	}
	t.keys.Store(p)
	return p
}

// derive makes the family of what t sends.
func (p *keyParts) derive(t *Task) {
	b := make([]byte, 0, 512)
	b = appendField(b, t.Method())
	b = append(b, t.urlFamily()...)
	if t.u.User != nil {
		b = appendField(append(b, '@'), t.u.User.String())
	}
	if host := canonicalAuthority(t.u.Scheme, t.host); host != t.authority {
		b = appendField(append(b, 'h'), host)
	}
	b = t.appendBodyHash(b)
	core := sha256.Sum256(b)

	entries := distinguishing(t.header)
	family := make([]byte, 0, len(derivedKind)+coreSize+partSize*len(entries))
	family = append(append(family, derivedKind...), core[:]...)
	p.names = make([]string, 0, len(entries))
	for i := 0; i < len(entries); {
		name := entries[i].name
		b = appendField(append(b[:0], core[:]...), name)
		for ; i < len(entries) && entries[i].name == name; i++ {
			for _, v := range t.header[entries[i].spelled] {
				b = appendField(b, v)
			}
		}
		value := sha256.Sum256(b)
		family = binary.BigEndian.AppendUint64(family, hashName(name))
		family = append(family, value[:partSize-nameSize]...)
		p.names = append(p.names, name)
	}
	p.family = string(family)
}

// headerEntry is a name of a header, canonical and as its map spells it.
type headerEntry struct{ name, spelled string }

// distinguishing are the entries that join a key, sorted as net/http sends them.
func distinguishing(h http.Header) []headerEntry {
	if len(h) == 0 {
		return nil
	}
	entries := make([]headerEntry, 0, len(h))
	for spelled, values := range h {
		if name := http.CanonicalHeaderKey(spelled); len(values) > 0 && !alwaysIgnored(name) {
			entries = append(entries, headerEntry{name, spelled})
		}
	}
	slices.SortFunc(entries, func(x, y headerEntry) int {
		if c := strings.Compare(x.name, y.name); c != 0 {
			return c
		}
		return strings.Compare(x.spelled, y.spelled)
	})
	return entries
}

// without is the family less the ignored headers; without any it costs nothing.
func (p *keyParts) without(ignore *headerSet) string {
	if ignore == nil || !slices.ContainsFunc(p.names, func(n string) bool { return ignore.names[n] }) {
		return p.family
	}
	const head = len(derivedKind) + coreSize
	kept := append(make([]byte, 0, len(p.family)), p.family[:head]...)
	for i, name := range p.names {
		if !ignore.names[name] {
			kept = append(kept, p.family[head+i*partSize:][:partSize]...)
		}
	}
	return string(kept)
}

// parseKey reads what Task.Key wrote, as a scheduler that ignores the given headers
// files it. Without an owner the key means the family's results of every owner.
func parseKey(key string, ignore *headerSet) (k dedupeKey, hasOwner, ok bool) {
	if rest, derived := strings.CutPrefix(key, derivedPrefix); derived {
		k, ok = parseDerived(strings.Split(rest, "."), ignore)
	} else if rest, named := strings.CutPrefix(key, namedPrefix); named {
		k, ok = parseNamed(strings.Split(rest, "."))
	}
	return k, k.owner != "", ok
}

func parseDerived(fields []string, ignore *headerSet) (dedupeKey, bool) {
	if len(fields) != 3 {
		return dedupeKey{}, false
	}
	core, ok1 := unbase64(fields[0])
	parts, ok2 := unbase64(fields[1])
	owner, ok3 := unbase64(fields[2])
	if !ok1 || !ok2 || !ok3 || len(core) != coreSize || len(parts)%partSize != 0 || len(owner)%ownerSize != 0 || len(owner) > ownerSize {
		return dedupeKey{}, false
	}
	family := append([]byte(derivedKind), core...)
	for part := range slices.Chunk(parts, partSize) {
		if ignore == nil || !ignore.hashes[binary.BigEndian.Uint64(part)] {
			family = append(family, part...)
		}
	}
	return dedupeKey{string(family), string(owner)}, true
}

func parseNamed(fields []string) (dedupeKey, bool) {
	if len(fields) != 2 {
		return dedupeKey{}, false
	}
	hash, ok1 := unbase64(fields[0])
	owner, ok2 := unbase64(fields[1])
	if !ok1 || !ok2 || len(hash) != coreSize || len(owner)%ownerSize != 0 || len(owner) > ownerSize {
		return dedupeKey{}, false
	}
	return dedupeKey{namedKind + string(hash), string(owner)}, true
}

func unbase64(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil
}

// rawDedupeKey is the family of a Request.DedupeKey.
func rawDedupeKey(s string) string {
	sum := sha256.Sum256([]byte(s))
	return namedKind + string(sum[:])
}

func hashOwner(owner string) string {
	if owner == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(owner))
	return string(sum[:ownerSize])
}

// hashName only tells names apart; names are no secret.
func hashName(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// urlFamily identifies the task's URL, whatever its method and headers.
func (t *Task) urlFamily() string {
	if p := t.page.Load(); p != nil {
		return *p
	}
	f := urlFamily(t.u)
	t.page.Store(&f)
	return f
}

// appendBodyHash hashes a JSON body in its canonical form, any other as it is.
func (t *Task) appendBodyHash(b []byte) []byte {
	if len(t.body) == 0 {
		return b
	}
	if isJSON(t.header) {
		if canonical, ok := canonicalJSON(t.body); ok {
			sum := sha256.Sum256(canonical)
			return append(append(b, 'j'), sum[:]...)
		}
	}
	sum := sha256.Sum256(t.body)
	return append(append(b, 'r'), sum[:]...)
}

// isJSON goes by the Content-Type: application/json or any +json (RFC 6839).
func isJSON(h http.Header) bool {
	for spelled, values := range h {
		if len(values) == 0 || http.CanonicalHeaderKey(spelled) != "Content-Type" {
			continue
		}
		media, _, _ := strings.Cut(values[0], ";")
		media = strings.ToLower(strings.TrimSpace(media))
		return media == "application/json" || strings.HasSuffix(media, "+json")
	}
	return false
}

// appendField appends s so that no two lists of fields look alike.
func appendField(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
