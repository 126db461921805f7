package ax

import (
	"log/slog"
	"math"
	"time"
)

// Config configures a Scheduler. The zero value is valid: 64 attempts at once,
// 1024 tasks waiting, nothing shared, nothing retried, a lane without limits
// for each host. [Recommended] is a better start for most programs.
//
// One rule holds for every field here and below: zero is the default that the
// field names, a nil policy is off (in a [Lane]: inherited), and a negative
// value, a NaN or a contradiction is refused by [New] with an error that spells
// the field's path, such as Lanes[1].Rate[0].Limit. New reports every fault at
// once and corrects none. It copies what it is given, deeply: changing a Config
// afterwards changes nothing. What may change while the scheduler runs has a
// method: [Scheduler.SetLimits], [Scheduler.SetBudget], [Scheduler.Pause].
//
// The callbacks (OnEvent, [Retry.If], [Breaker.IsFailure], [Fallback.Static],
// Executor, Governor) run outside every lock, may run at the same time for
// different tasks, and must therefore be safe for concurrent use.
type Config struct {
	// MaxConcurrent bounds the attempts in flight, all lanes together. An
	// attempt counts from its send to the end of its body; a task that waits,
	// in a queue or between two attempts, does not, and an attempt nested in
	// another, made with that one's ctx, takes no slot of its own. 0 = 64;
	// [NoLimit] lifts it. Only a limit makes priorities matter: without one
	// nobody waits.
	MaxConcurrent int

	// MaxQueue bounds the tasks that wait for their first start, all lanes
	// together, those of paused lanes included. A waiting retry is never
	// refused for a full queue. 0 = 1024; NoLimit lifts it. To refuse every
	// wait set [Request.NoWait]. See Overflow for what a full queue does.
	MaxQueue int

	// Rate bounds the starts of attempts, retries included, all lanes
	// together. Each of the rates must allow a start: ten a second and five
	// thousand a day is a slice of two. nil or empty = no limit.
	Rate []Rate

	// AttemptTimeout bounds one attempt, from its send to the end of its body;
	// of a stream, to its headers. Waiting does not count. An attempt that
	// exceeds it failed, and may be retried. 0 or [NoTimeout] = none: only the
	// caller's ctx ends it. Lanes and requests may override it.
	AttemptTimeout time.Duration

	// IdleTimeout bounds the silence inside a streamed body: longer than this
	// without a byte and reading fails. Nothing else bounds a server that hangs in
	// the middle of a stream. 0 or NoTimeout = none. Lanes may override it.
	IdleTimeout time.Duration

	// QueueTimeout bounds each wait for a start: the first from submission,
	// that of a retry from the end of its backoff. A first start that comes
	// too late is [ErrQueueTimeout]; for a retry the last outcome stands.
	// 0 or NoTimeout = only the caller's ctx bounds it. Lanes and requests may
	// override it.
	QueueTimeout time.Duration

	// MinRemaining is the time that a task must have left before its deadline
	// when its turn comes. With less it is refused with
	// [ErrWouldExceedDeadline] and not started, since its answer would come
	// too late for anybody. 0 or NoTimeout = any time left is enough. Lanes
	// may override it.
	MinRemaining time.Duration

	// AgingStep keeps low priorities from starving: a waiting task rises by
	// one level for every step it has waited, and then stands behind those who
	// were on that level before. 0 = 6s. Lanes and requests may override it. With
	// StrictPriority it has no effect.
	AgingStep time.Duration

	// StrictPriority turns aging off: the higher priority always goes first,
	// and a steady stream of urgent tasks starves all others.
	StrictPriority bool

	// MaxBodyBytes is the largest body that is read to its end before the
	// caller gets the answer. A larger one is streamed: it keeps its slot
	// until it is read or closed, and it cannot be shared. Through Transport() one
	// of unknown length, such as net/http decompresses, is streamed whatever its
	// size: AttemptTimeout covers it to its headers only. 0 = 4 MiB.
	MaxBodyBytes int64

	// Overflow says what a newcomer to a full queue meets: [OverflowReject],
	// the default, or [OverflowEvict].
	Overflow Overflow

	// Dedupe shares one attempt and its answer among tasks with equal keys.
	// nil = off.
	Dedupe *Dedupe

	// Retry sends failed attempts again. nil = off. Lanes and requests may
	// replace it.
	Retry *Retry

	// Breaker holds back a lane whose attempts keep failing; each lane has a
	// state of its own. nil = off. Lanes may replace it.
	Breaker *Breaker

	// Fallback answers for tasks that have failed or were refused. nil = off.
	// Lanes and requests may replace it.
	Fallback *Fallback

	// Hedge sends a second attempt of a slow idempotent task. nil = off. Lanes
	// and requests may replace it.
	Hedge *Hedge

	// Lanes give some traffic limits and policies of its own. A task goes to
	// the lane that its Request names, else to the one with the most specific
	// matching pattern, whatever the order here, else to its host's.
	Lanes []Lane

	// Hosts is the template for the lane that every host outside Lanes gets of
	// its own, named by its authority without the scheme's own port
	// ("api.example.com", also for https on 443; "127.0.0.1:8080"). Its Name and
	// Match must be empty. nil = lanes without limits that inherit every policy.
	// Such a lane is forgotten when that changes nothing.
	Hosts *Lane

	// Budgets limit what the named owners may start, run and queue; see
	// [Request.Owner]. Tasks without an owner pay nothing.
	Budgets map[string]Budget

	// Owners is the template for every owner that is not in Budgets; each gets
	// one of its own. nil = no limit.
	Owners *Budget

	// DryRun holds nothing back, shares nothing and refuses nothing: each task
	// is one attempt, at once, without retry, hedge, breaker, fallback or
	// Governor; AttemptTimeout still ends it. Stats.Would counts what would have
	// been; Waiting shows nothing. It is for the first days, when the right limits
	// are not known yet: read [Scheduler.Advice] then.
	DryRun bool

	// OnEvent is told everything that happens to tasks and lanes. It runs on
	// the task's goroutine (of a lone Do: the caller's own), in order for each
	// task, at the same time for different ones; a task goes on when it has
	// returned, so a slow one slows its task and no other.
	//
	// It may call anything that does not wait for a task, Submit included, and
	// Do with [Event.Context] while that event's attempt runs. Do with another
	// ctx, [Call.Result], Shutdown and Close may wait for the very task that
	// calls: start a goroutine for them. A panic in it is recovered and
	// logged, and changes nothing else. nil = nobody is told.
	OnEvent func(Event)

	// Logger gets the few lines worth an operator's attention: breaker
	// transitions, pauses of lanes, owners over their budget, bodies nobody
	// closed, panics of OnEvent, the Heartbeat. URLs in it carry no query values.
	// nil = discard.
	Logger *slog.Logger

	// Heartbeat is the time between two lines to Logger that tell what is
	// active, queued, parked and finished since the last, and the age and lane
	// of the oldest waiter; none while there is no work, or without a Logger. 0 =
	// off.
	Heartbeat time.Duration

	// Executor makes the attempts. nil = [HTTPExecutor] over New's client.
	// With one, that client must be nil.
	Executor Executor

	// Governor applies limits that many processes share, after all others: it is
	// asked for each attempt of a task, except those nested in another. nil = this
	// process is on its own.
	Governor Governor
}

// NoLimit, as a MaxConcurrent or MaxQueue, means no limit at all where zero
// would mean a default, and lifts a limit in [Limits].
const NoLimit = math.MaxInt

// NoTimeout, as an AttemptTimeout, IdleTimeout, QueueTimeout or MinRemaining,
// means none where zero would inherit one. As an AgingStep it means that
// waiting tasks never rise, as a [Hedge.After] that there is no hedge.
const NoTimeout time.Duration = math.MaxInt64

// Limits is what [Scheduler.SetLimits] puts in force for one lane or for the
// whole scheduler. A field left zero keeps what is in force. Fewer slots than
// are taken cancel nothing: starts wait until enough have ended. The history
// of starts is kept as far as the old rates remember it, which is for their Per:
// a new rate of the same span or a shorter one holds from the first moment. Where
// there was none before, or one of a shorter span, it counts from what is known.
type Limits struct {
	// MaxConcurrent bounds the attempts in flight. 0 = keep; NoLimit lifts it.
	MaxConcurrent int
	// MaxQueue bounds the waiting tasks. Those who wait already stay. 0 =
	// keep; NoLimit lifts it.
	MaxQueue int
	// Rate bounds the starts. nil = keep; [Unlimited] lifts it.
	Rate []Rate
}

// Rate bounds the starts of attempts over time.
//
// With Burst 0 it is a quota, exact where attempts are handed to the transport: at
// most Limit starts in any window of Per, wherever that window begins, so that two
// neighbouring seconds can never share a double burst. An entry counts from its
// grant until Per and Guard have passed since the attempt was handed over, which
// costs a little of the allowed rate and keeps the promise. What lies behind that,
// a dial and a handshake most of all, is what Guard is for. With Burst of 1 or
// more it is a token bucket as in golang.org/x/time/rate: on average Limit starts
// per Per, after a quiet time up to Burst of them at once. Choose the quota, with a
// Guard, for a server that counts and refuses, the bucket for one that merely tires.
//
// Tokens are taken by a task that starts, never by one that waits.
type Rate struct {
	// Limit is the number of starts per Per: at least 1. For no limit leave
	// the rate out.
	Limit int
	// Per is the time in which Limit starts are allowed. 0 = 1s.
	Per time.Duration
	// Burst is the size of the token bucket. 0 = no bucket but the exact quota.
	Burst int
	// Smooth also spaces the starts of a quota Per/Limit apart; where a late timer
	// delayed one, the next ones come a little sooner, by at most two fifths. Burst
	// 0 only.
	Smooth bool
	// Guard makes the window of a quota longer: room for requests that overtake
	// each other on the network, for the handshake of a new connection, and for a
	// server clock that cuts windows elsewhere. 0 = none. Burst 0 only.
	Guard time.Duration
}

// PerSecond is an exact quota of n starts in any second, counted where they
// leave; n must be at least 1. A server that counts arrivals, which the network
// shifts, wants [Rate] with a Guard such as 50 ms.
func PerSecond(n int) []Rate { return []Rate{{Limit: n, Per: time.Second}} }

// PerMinute is an exact quota of n starts in any minute; n must be at least 1.
func PerMinute(n int) []Rate { return []Rate{{Limit: n, Per: time.Minute}} }

// Unlimited is no rate at all. It lifts a rate in [Limits], where nil would
// keep it; elsewhere it means the same as nil.
func Unlimited() []Rate { return []Rate{} }

// Lane gives some traffic a queue, limits and policies of its own. What one
// lane waits for delays no other.
//
// A server may close a lane for a while: by 429 or 503 with Retry-After, or by an
// answer of any status that says that nothing is left of a quota and when it is
// renewed (RateLimit, X-RateLimit-Remaining and -Reset, in seconds or as a moment).
// Both are believed for at most Retry.MaxDelay, 30 s without a Retry;
// [EventLanePaused] says which it was. When such a pause ends, starts rise over a
// second. Traffic with quotas of their own on one host, such as one for each token,
// wants lanes of its own.
//
// Its limits apply beside the scheduler's: a start needs both. Its timeouts and
// policies replace the scheduler's: 0 or nil inherits, a value replaces the
// whole of it (a Retry is not merged, field by field, with the scheduler's),
// and NoTimeout, NoRetry, NoBreaker and NoFallback switch it off.
type Lane struct {
	// Name is what [Request.Lane], [Scheduler.SetLimits], Pause and Stats call
	// the lane; it must be unique. "" = the first of Match, as written.
	Name string

	// Match lists the patterns "[METHOD ]host[:port][/path]" of the requests
	// that go here. A bare host is the whole host; host names match without
	// case. A port, if written, must match; a URL without one has its scheme's.
	// Methods and paths are those of [net/http.ServeMux]: GET includes HEAD,
	// "/v1/" is all below it, and "/v1" too where no other pattern has that; "/v1"
	// is only itself, and {id}, {rest...} and {$} work. Paths are compared cleaned
	// of "//" and "..".
	//
	// The most specific pattern of all lanes wins: one with a port beats one
	// without, then the narrower path, then the narrower method. Two lanes
	// whose patterns leave that open are an error. nil = only requests that
	// name the lane.
	Match []string

	// MaxConcurrent bounds the lane's attempts in flight. 0 or NoLimit = only
	// the scheduler's limit.
	MaxConcurrent int
	// MaxQueue bounds the lane's waiting tasks. 0 or NoLimit = only the
	// scheduler's limit.
	MaxQueue int
	// Rate bounds the lane's starts, beside the scheduler's. nil = no limit of
	// its own.
	Rate []Rate

	// AttemptTimeout replaces [Config.AttemptTimeout]. 0 = inherit; NoTimeout
	// = none.
	AttemptTimeout time.Duration
	// IdleTimeout replaces [Config.IdleTimeout]. 0 = inherit; NoTimeout = none.
	IdleTimeout time.Duration
	// QueueTimeout replaces [Config.QueueTimeout]. 0 = inherit; NoTimeout =
	// none.
	QueueTimeout time.Duration
	// MinRemaining replaces [Config.MinRemaining]. 0 = inherit; NoTimeout =
	// any time left is enough.
	MinRemaining time.Duration
	// AgingStep replaces [Config.AgingStep]. 0 = inherit. With
	// [Config.StrictPriority] it has no effect.
	AgingStep time.Duration

	// Retry replaces [Config.Retry]. nil = inherit; see NoRetry.
	Retry *Retry
	// Breaker replaces [Config.Breaker]. nil = inherit; see NoBreaker.
	Breaker *Breaker
	// Fallback replaces [Config.Fallback]. nil = inherit; see NoFallback.
	Fallback *Fallback
	// Hedge replaces [Config.Hedge]. nil = inherit; &Hedge{After: NoTimeout}
	// = none.
	Hedge *Hedge

	// NoRetry switches an inherited Retry off. Not beside Retry.
	NoRetry bool
	// NoBreaker switches an inherited Breaker off. Not beside Breaker.
	NoBreaker bool
	// NoFallback switches an inherited Fallback off. Not beside Fallback.
	NoFallback bool
}

// Overflow says what a newcomer to a full queue meets.
type Overflow int

const (
	// OverflowReject refuses the newcomer with [ErrQueueFull].
	OverflowReject Overflow = iota
	// OverflowEvict lets the newcomer in if it outranks the worst-ranked
	// waiter of the full queue, which ends with [ErrEvicted]; a retry is never
	// evicted, and a shared flight goes with all its callers. Else the
	// newcomer is refused with ErrQueueFull.
	OverflowEvict
)

// String is "reject" or "evict".
func (o Overflow) String() string { return enumName("Overflow", int(o), "reject", "evict") }

// Recommended is a good first Config for calling other people's servers:
// Dedupe, Retry and Breaker on with their defaults, and six attempts at once
// for each host. Every other field is zero. Each call returns a new one, free
// to be changed.
func Recommended() Config {
	return Config{Dedupe: &Dedupe{}, Retry: &Retry{}, Breaker: &Breaker{}, Hosts: &Lane{MaxConcurrent: 6}}
}
