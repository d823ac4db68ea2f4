package main

import (
	"fmt"
	"io"
	"strings"
)

func usage(w io.Writer) {
	fmt.Fprint(w, `sunaba runs untrusted code in a box.

usage:
  sunaba run [flags] FILE [ARG...]       run a script or a program
  sunaba run [flags] -e CODE             run code from the argument (--lang)
  sunaba run [flags] -                   run code from standard input (--lang)
  sunaba run [flags] -- CMD [ARG...]     run any command of the box
  sunaba serve [flags]                   boxes that last, over REST and MCP
  sunaba recover [--state DIR]           move a database that cannot be read aside
  sunaba box COMMAND ...                 make and use these boxes
  sunaba snapshot COMMAND ...            copies of boxes, from which boxes are made
  sunaba volume COMMAND ...              file systems that outlive boxes
  sunaba policy COMMAND ...              check and explain what a box may reach
  sunaba key COMMAND ...                 who may call the daemon
  sunaba mcp [flags]                     tools for a model, on standard input and output
  sunaba doctor [-o json]                try every step of a box on this host
  sunaba version

`+"`sunaba help COMMAND` tells of one; `sunaba help run` lists the flags.\n")
}

func runUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba run [flags] FILE [ARG...]                      a script or a program of yours
  sunaba run [flags] -e CODE --lang LANGUAGE [ARG...]   code from the argument
  sunaba run [flags] --lang LANGUAGE - [ARG...]         code from standard input
  sunaba run [flags] -- CMD [ARG...]                    any command of the box

Flags come first. What follows FILE, - or -- belongs to the program.

flags:
`)
	for _, o := range new(runFlags).options(nil, nil) {
		var names []string
		for _, n := range o.names {
			names = append(names, dashed(n))
		}
		describe(w, strings.Join(names, ", ")+" "+o.arg, o.help)
	}
	fmt.Fprint(w, "\nflags that are also keys of the configuration file:\n")
	for _, k := range keyFlags() {
		arg, help := strings.ToUpper(k.Type), k.Help
		switch {
		case k.Type == "choice":
			help += ": " + k.Allowed
		case k.Flag == "env":
			arg = "NAME=VALUE"
		case k.Flag == "volume":
			arg = "NAME:PATH[:ro]"
		case k.Default == "false":
			arg = ""
		case strings.Contains(k.Type, "path"):
			arg = "PATH"
		}
		if k.List() {
			help += "; may be repeated"
		}
		if k.Default != "" && k.Default != "false" {
			help += " (default " + strings.Trim(k.Default, `"`)
			if k.Flag == "timeout" || k.Flag == "max-output" {
				help += "; none when you sit at the terminal of -t"
			}
			help += ")"
		}
		describe(w, "--"+k.Flag+" "+arg, help)
	}
}

// describe writes one flag and its help, broken into lines.
func describe(w io.Writer, flag, help string) {
	const column, width = 26, 96
	line := "  " + strings.TrimSpace(flag)
	if len(line) > column-2 {
		fmt.Fprintln(w, line)
		line = ""
	}
	line += strings.Repeat(" ", column-len(line))
	used := column
	for i, word := range strings.Fields(help) {
		if i > 0 && used+1+len(word) > width {
			line += "\n" + strings.Repeat(" ", column)
			used = column
		} else if i > 0 {
			line += " "
			used++
		}
		line += word
		used += len(word)
	}
	fmt.Fprintln(w, line)
}
