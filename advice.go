package ax

// Advice suggests settings from what was measured, in order of lanes.
func (s *Scheduler) Advice() []Advice { return nil }
