// Package e2e tests what a person or a program sees who runs the sunaba binary:
// what they type, what comes back, what is left on the host.
//
// What can be written as lines of a shell is in testdata/*.txtar; see
// commands_test.go for the commands beyond testscript's own. The rest needs
// pipes, signals or a terminal and is in Go. Everything runs as root and as an
// ordinary user if the test may be both.
package e2e

import (
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
