# Names for plain go commands, and no more than that.
.PHONY: test race vet quickstart ci
test:
	go test ./...
race:
	go test -race -shuffle=on ./...
vet:
	gofmt -l . && go vet ./...
quickstart:
	go run ./examples/quickstart
ci:
	.ci/run
