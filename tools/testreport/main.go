// Command testreport runs a `go test -json` and turns what it says into a page
// that can be read: one line a package, the output of what failed, every skip with
// its reason, and the count as the last line.
//
//	testreport [-again regexp] go test -json ./...
//
// It exits 1 if anything failed, and if no test ran at all: a green run that
// tested nothing is a failure. With -again it looks at what failed a second time,
// within narrow bounds (see [again]), and names what it finds to be unsteady.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	where := flag.String("again", "^$", "packages whose failed tests are run again alone, as a `regexp` of their import paths")
	flag.Parse()
	may, err := regexp.Compile(*where)
	if err != nil || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: testreport [-again regexp] go test -json PACKAGES", err)
		os.Exit(2)
	}
	env := os.Environ() // go's own settings are there
	seen := run(flag.Args(), env, os.Stdout)
	if seen.failed > 0 {
		seen = again(seen, may, func(t test) error { return goTest(t, env) }, os.Stdout)
	}
	fmt.Println(seen)
	if !seen.ok() {
		os.Exit(1)
	}
}
