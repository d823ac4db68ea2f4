package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versions says what this binary is made of.
func versions() (version, gvisor string) {
	version, gvisor = "(unknown)", "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, d := range info.Deps {
			if d.Path == "gvisor.dev/gvisor" {
				gvisor = d.Version
			}
		}
	}
	return version, gvisor
}

// versionCommand prints it.
func versionCommand() int {
	version, gvisor := versions()
	fmt.Printf("sunaba %s %s/%s %s\ngvisor %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version(), gvisor)
	return 0
}
