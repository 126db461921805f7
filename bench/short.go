package bench

// Why some marks are not met: what the time or the memory goes into, by CPU and heap
// profiles, and what has been tried. RESULTS.md shows these beside the marks that
// they are about, if there is one that is missed or open.
const (
	shortFree = "what a free call costs is, in parts of its processor time: two fifths memory (the attempt, which is the context that the executor may keep, and the response: neither can be used twice) and its collection, a quarter the token bucket (x/time/rate, asked for its level and for a token, under its mutex and the set's), an eighth two readings of the clock, the rest what Stats, Advice, breaker and retry budget keep of it. The stack by hand keeps none of that, and stands at the mark itself. " +
		"What helped: no scheduler mutex on this way, successes in atomics, a flight only for who needs one and a watch on the context only for who asks (1008 B and a half more time before), no lock for rates that are not there. What was given up: a pool of attempts (an executor may keep its context) and a bucket of our own (the library's is kept on purpose)."

	shortDeduped = "an attempt that outlives its caller needs a goroutine of its own, and with it two hand-overs between goroutines and a second stack; by hand the same takes more than the mark as well. A fifth of the time is starting and waking goroutines, a tenth making room for an HTTP client on the new stack (which pays off with one: without that room the stack would double twice on the way into it), a fifth memory, a fifth queue, gate and books under the mutex. " +
		"What helped: the key is derived before the mutex is taken, the send takes none, a joiner carries no flight, a URL's only flight needs no map of its own (13 objects before, 9 now). Running the attempt on its first caller's goroutine was given up: that caller could not leave before it is over."

	shortFull = "each call passes the mutex twice, to queue and to hand its slot on, and the second time everything is decided that makes the gate what it is: order by rank over lanes and owners, tokens, breaker, and the books of Stats and Advice. On one processor that is a third of the time, memory a fifth, switching goroutines a fifth; on two processors waiting for the mutex comes on top. x/sync's semaphore has a list and a counter. " +
		"What helped: nothing is allocated while the mutex is held, what follows is done after it, empty limits and the nobody of all owners cost a comparison. A queue without the mutex was given up: rank, cancel and re-ranking would need one of its own. A lock that spins in place of the mutex would take a fifth off here, and the processor from everybody else."

	shortScaling = "the calls of 64 callers need both processors at once: another process that takes one of them for a moment doubles a round, and the interval is as wide as the machine is noisy. What does not scale of a free call is the lock of the token bucket, as in the stack by hand."

	shortHeap = "at a million items every level below the seventh misses the cache, for the children and for the place that each moved item must know. The children of a node share two cache lines with nobody else; container/heap must also look into the items for their keys."

	shortHerd = "a caller is a task with a number, a rank, events and an end of its own that Stats counts, and gets a response that nobody else holds; copies alone make DoChan a fifth to a half slower. A sixth of it is copying headers, an eighth the stack that the copy needs when it comes to it (4 KiB in place of 2), a tenth admission, a tenth the collector. " +
		"What helped: who joins a flight carries none, its place among the callers comes with it, the channel is made before the mutex is taken, all are woken after it, and admission fits a goroutine's first stack (a third more before). What did not: a lock that spins in place of the mutex."

	shortLoopback = "what shares has to send on a goroutine of its own and to keep the body: the hand-written floor of that, \"by hand, detached\", takes 1.4 to 1.8 times the processor time of http.Client, so the mark is out of reach of whoever shares. Starting and waking a goroutine costs more here than in a3, since the processors are not busy all the time: each wake-up looks for an idle one. Of ax's surplus over that floor most is order, books and the Task that is made for each call. Without dedupe it is the gate, the Task, the body kept for a retry, and a context that can end for four reasons. The peers at the mark have no gate and keep no body. " +
		"What was given up: sending on the first caller's goroutine, which could not leave then, and goroutines kept for the next call, since none may be there at rest."

	shortUrgent = "the interval is as wide as the machine is noisy: a wait is measured in parts of 20 ms, and another process that takes the processor for as long is a whole service time."

	shortRate = "the share of an exact window is lost between the moment at which a window lets the next start happen and the one at which a timer's goroutine runs: a fraction of a millisecond for every window. Where a round shows a 201st start it is the work's own reading of the clock that does: a goroutine that loses its processor between the moment that counts for the window, which is the last thing that ax reads, and its own reading seems to start later than it did, and the one a second after it too early. With both processors kept busy by others that was one of 5,920 starts, and none by the moments that events tell (sixteen while the clock was read before the locks). Rate.Guard is for whoever counts elsewhere."

	shortMemory = "a waiting Do is a goroutine of 2 KiB stack and some 600 bytes of the runtime's, and 900 bytes of task, flight, channel and place in the queue. What helped: admission returns before the wait, so that it fits the first stack (4 KiB before); attempt and buffers come with the start; Calls of one context are watched together (834 B before)."

	shortAbandoned = "who waits has a Task already, since what is to be sent is checked before it may queue: request, URL and a stack of 4 KiB, on which the URL was parsed. The callers behind the semaphore make their request when they have their turn. What helped: the Task is made with one copy of the Request instead of four, on half the stack (0.47 before). With MinRemaining, which ends the wait earlier and not for all at once, it is below the mark."
)
