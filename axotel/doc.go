// Package axotel shows what an ax.Scheduler does through OpenTelemetry: metrics
// of its lanes, a span for each task with a child for each attempt, and the
// trace's context in the headers of what is sent.
//
//	cfg := ax.Recommended()
//	cfg.Executor = ax.HTTPExecutor(&http.Client{Transport: axotel.Transport(nil)})
//	if err := axotel.Instrument(&cfg, tracerProvider, meterProvider); err != nil {
//		return err
//	}
//	sched, err := ax.New(nil, cfg)
//
// Metrics carry five attributes and no more: lane, owner, outcome, source, state.
// Lanes and owners beyond the first 256 of each, and those that the Config names,
// are counted as "_other", so that neither a crawler's hosts nor a service's
// tenants can fill the memory.
//
// Nothing recorded holds user info, query, headers or bodies of a request or an
// answer, nor the text of an error: errors are told by their kind.
package axotel
