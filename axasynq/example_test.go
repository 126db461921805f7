package axasynq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
)

// Where the work is made: the task is stored, and outlives this process.
func ExampleEnqueue() {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"})
	defer client.Close()

	task := ax.Must(ax.Request{
		Method: "POST", URL: "https://api.example.com/invoices", JSON: map[string]any{"order": 7},
		Priority: ax.Important, DedupeKey: "invoice of order 7",
	}.Task())
	info, err := axasynq.Enqueue(context.Background(), client, task, asynq.MaxRetry(10))
	switch {
	case errors.Is(err, asynq.ErrDuplicateTask):
		fmt.Println("it is on its way already")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("stored as", info.ID, "in", info.Queue)
	}
}

// Where the work is done: any number of processes share the queues.
func ExampleHandler() {
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	srv := asynq.NewServer(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"}, asynq.Config{
		Concurrency:    64, // the scheduler decides how many are sent at once
		Queues:         axasynq.Queues(),
		IsFailure:      axasynq.IsFailure,
		RetryDelayFunc: axasynq.RetryDelay,
	})
	mux := asynq.NewServeMux()
	mux.Handle(axasynq.Type, axasynq.Handler(sched))
	if err := srv.Run(mux); err != nil { // until SIGTERM; first the server stops …
		log.Fatal(err)
	}
	if err := sched.Shutdown(context.Background()); err != nil { // … then the scheduler
		log.Fatal(err)
	}
}

// The answer to a task can be read by whoever knows its queue and id.
func ExampleResult() {
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"})
	defer inspector.Close()
	info, err := inspector.GetTaskInfo("important", "the id that Enqueue returned")
	if err != nil {
		log.Fatal(err)
	}
	var result axasynq.Result
	if err := json.Unmarshal(info.Result, &result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, result.Status, string(result.Body))
}
