package axasynq

import "github.com/axsched/ax"

// The queues by priority.
const (
	queueUrgent    = "urgent"
	queueImportant = "important"
	queueNormal    = "default"
	queueLow       = "low"
)

// Queues is the Queues of an asynq.Config for the queues that [Enqueue] fills:
// "urgent", "important", "default" and "low", each with twice the weight of the
// next. Each call returns a new map, free to be changed.
//
// Weights share out the workers while all queues have work; a scheduler then
// orders what the workers hold by rank.
func Queues() map[string]int {
	return map[string]int{queueUrgent: 8, queueImportant: 4, queueNormal: 2, queueLow: 1}
}

// queueOf is the queue for a priority; those between and beyond the named levels
// go to the nearest below, or to the lowest.
func queueOf(p ax.Priority) string {
	switch {
	case p >= ax.Urgent:
		return queueUrgent
	case p >= ax.Important:
		return queueImportant
	case p >= ax.Normal:
		return queueNormal
	}
	return queueLow
}
