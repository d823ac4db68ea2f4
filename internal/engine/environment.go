package engine

import (
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Environment is what a program sees: what every program of the user needs, and
// what the caller adds, which wins. PATH comes from the image.
func Environment(user box.User, more ...string) []string {
	env := []string{
		"HOME=/home/user", "USER=user", "LOGNAME=user", "LANG=C.UTF-8", "SHELL=/bin/bash",
		"PYTHONUNBUFFERED=1", // output is streamed, not kept until the end
	}
	if user == box.UserRoot {
		env = []string{"HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "SHELL=/bin/bash", "PYTHONUNBUFFERED=1"}
	}
	for _, v := range more {
		name, _, _ := strings.Cut(v, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		env = append(env, v)
	}
	return env
}
