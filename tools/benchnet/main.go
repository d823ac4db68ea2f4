// Command benchnet measures what a box pays for its network: downloads, uploads,
// connections and requests from boxes of both tiers, over TLS that is spliced, in
// HTTP that is read and by connections that are passed on unread; beside the same
// program without a box, on loopback, directly and through a squid that splices by
// name as the gateway does. It measures, too, what the gateway's process holds for
// links that are quiet and for those that are not.
//
// All is in network namespaces of its own: one for the boxes, the gateway and
// squid, one for the server, with a pair of interfaces between them, and one for
// each link that is not quiet. As in
// tools/bench all take turns, each once a round, in an order that is drawn anew for
// each, and what is quoted is the median of the ratios within the rounds.
//
// It needs root, and for squid the package squid-openssl. What is not installed or
// fails is named.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Names under which this program runs itself.
const (
	roleInside = "benchnet-inside" // in a fresh network namespace
	roleWorld  = "benchnet-world"  // the server, in another
	roleNear   = "benchnet-near"   // the server once more, on loopback
	roleLink   = "benchnet-link"   // one end of a link, in a namespace of its own
	roleClient = "benchnet-client" // what is measured
)

type options struct {
	sunaba, before, out            string
	rounds, conns, ping, megabytes int
	quiet, active                  int
	only                           string
}

func main() {
	var err error
	switch os.Args[0] {
	case roleInside:
		err = inside(os.Args[1:])
	case roleWorld:
		err = world(os.Args[1:])
	case roleNear:
		err = near(os.Args[1:])
	case roleLink:
		err = linked()
	default:
		if len(os.Args) > 1 && os.Args[1] == roleClient {
			err = client(os.Args[2:])
		} else {
			err = outside(os.Args[1:])
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchnet:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("benchnet", flag.ContinueOnError)
	fs.StringVar(&o.sunaba, "sunaba", "bin/sunaba", "the program to measure")
	fs.StringVar(&o.before, "before", "", "another build of it, whose boxes take turns with its own: what a change does")
	fs.StringVar(&o.out, "out", "", "also write the table to this file")
	fs.IntVar(&o.rounds, "rounds", 7, "how often each takes its turn; 0 for none")
	fs.IntVar(&o.conns, "conns", 30, "connections of a turn, one after the other")
	fs.IntVar(&o.ping, "requests", 100, "small requests of a turn, on one connection")
	fs.IntVar(&o.megabytes, "megabytes", 256, "MiB that a turn downloads, and uploads")
	fs.IntVar(&o.quiet, "quiet", 1000, "links without a packet, for the gateway's memory; 0 for none")
	fs.IntVar(&o.active, "active", 50, "links with a connection, for the gateway's memory; 0 for none")
	fs.StringVar(&o.only, "only", "", "measure only ways whose name and mode match this expression")
	return o, fs.Parse(args)
}

// outside goes into a fresh network namespace.
func outside(args []string) error {
	if _, err := parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("cannot make network namespaces: it takes root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{roleInside}, args...)
	cmd.Env = environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// environment is that of all that this program starts.
func environment() []string { return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"} }
