module github.com/sunaba-dev/sunaba

go 1.26.3

require (
	github.com/google/subcommands v1.0.2-0.20190508160503-636abe8753b8
	github.com/opencontainers/runtime-spec v1.2.1
	golang.org/x/sys v0.43.0
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237
)
