package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand prints what this binary is made of.
func versionCommand() int {
	version, gvisor := "(unknown)", "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, d := range info.Deps {
			if d.Path == "gvisor.dev/gvisor" {
				gvisor = d.Version
			}
		}
	}
	fmt.Printf("sunaba %s %s/%s %s\ngvisor %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version(), gvisor)
	return 0
}
