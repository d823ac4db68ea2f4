package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// peer is one way from the program to the server.
type peer struct {
	name, mode string
	absent     error // why it cannot be measured
	cmd        func(ctx context.Context, args ...string) *exec.Cmd
	turns      []turn // one for each round; without connects if it failed
	bad        []string
}

func inside(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/var/tmp", "sunaba-benchnet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := copySelf(dir)
	if err != nil {
		return err
	}
	if err := makeCertificate(dir); err != nil {
		return err
	}
	w, err := makeWorld(dir)
	if err != nil {
		return err
	}
	defer end(w)
	n, err := startNear(dir)
	if err != nil {
		return err
	}
	defer end(n)
	squid, absent := startSquid(dir)
	if absent == nil {
		defer end(squid)
	}
	peers, err := o.peers(dir, self, absent)
	if err != nil {
		return err
	}
	r := result{options: o, peers: peers, before: load()}
	extra := []string{"-ca", filepath.Join(dir, certFile), "-conns", strconv.Itoa(o.conns), "-requests", strconv.Itoa(o.ping), "-megabytes", strconv.Itoa(o.megabytes)}
	for i := range o.rounds {
		for _, p := range rand.Perm(len(peers)) {
			if peers[p].absent == nil {
				peers[p].take(extra)
			}
		}
		fmt.Fprintf(os.Stderr, "\rbenchnet: round %d of %d ", i+1, o.rounds)
	}
	fmt.Fprintln(os.Stderr)
	if o.quiet > 0 {
		r.quiet, r.quietErr = holdQuiet(o)
	}
	if o.active > 0 {
		r.active, r.activeErr = holdActive(o, filepath.Join(dir, certFile))
	}
	return r.write()
}

// peers are all ways that the expression matches. All of the program's files are
// in dir, which boxes see under its own name.
func (o options) peers(dir, self string, noSquid error) ([]*peer, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "policy.yaml")
	text := "version: 1\nhosts:\n  - { host: " + name + ", tls: splice }\n  - { host: " + name + ", port: " + portHTTP + " }\n  - { host: " + name + ", port: " + portRaw + ", protocol: tcp }\n"
	if err := write(policy, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var all []*peer
	for _, m := range modes() {
		url := slices.Clip([]string{"-url", m.url})
		ways := []*peer{
			{name: nameLoopback, cmd: bare(self, append(url, "-at", nearAddr)...)},
			{name: "no box, direct", cmd: bare(self, append(url, "-at", serverAddr)...)},
			{name: nameSquid, cmd: bare(self, append(url, "-proxy", squidAddr)...), absent: noSquid},
			{name: nameProcess, cmd: boxed(o.sunaba, dir, policy, "process", url)},
			{name: nameGvisor, cmd: boxed(o.sunaba, dir, policy, "gvisor", url)},
		}
		if m.name == modeSplice { // the same work on both sides, by connections alone
			ways = append(ways,
				&peer{name: nameSquid + askedSuffix, absent: noSquid, cmd: bare(self, append(url, "-bulk=false", "-proxy", squidAddr, "-ask", resolverAddr+":53")...)},
				&peer{name: nameProcess + knownSuffix, cmd: boxed(o.sunaba, dir, policy, "process", append(url, "-bulk=false", "-known"))},
				&peer{name: nameGvisor + knownSuffix, cmd: boxed(o.sunaba, dir, policy, "gvisor", append(url, "-bulk=false", "-known"))})
		}
		if o.before != "" {
			for _, tier := range []string{"process", "gvisor"} {
				ways = append(ways, &peer{name: "box of tier " + tier + beforeSuffix, cmd: boxed(o.before, dir, policy, tier, url)})
			}
		}
		for _, p := range ways {
			p.mode = m.name
			if slices.Contains(m.without, p.name) || !only.MatchString(p.name+" "+p.mode) {
				continue
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// mode is what is spoken on the way to the server.
type mode struct {
	name, what, url string
	without         []string // ways that it has not
}

func modes() []mode {
	return []mode{
		{name: modeSplice, what: "TLS, the hello judged and the rest passed on", url: "https://" + name + "/"},
		{name: "http", what: "HTTP, every request judged; squid is a plain proxy here, which keeps its connections to the server", url: "http://" + name + "/"},
		{name: "tcp", what: "the same in a connection that nobody reads", url: "http://" + name + ":" + portRaw + "/", without: []string{nameSquid}},
	}
}

// Names that ratios refer to.
const (
	nameLoopback = "no box, loopback"
	nameSquid    = "no box, squid"
	nameProcess  = "box of tier process"
	nameGvisor   = "box of tier gvisor"
	modeSplice   = "splice"
	beforeSuffix = ", before"     // of the other build
	askedSuffix  = ", name asked" // at each connection, as in a box
	knownSuffix  = ", name known" // as to squid's client
)

// startNear starts the server on loopback.
func startNear(dir string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Stderr = []string{roleNear, dir}, environment(), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		return nil, fmt.Errorf("cannot start the server on loopback: it says %q, %w", line, err)
	}
	return cmd, nil
}

func (p *peer) take(args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := p.cmd(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var t turn
	if err == nil {
		err = json.Unmarshal(out, &t)
	}
	if err != nil {
		p.bad = append(p.bad, fmt.Sprintf("%v: %.300s", err, stderr.String()))
		t = turn{}
	}
	p.turns = append(p.turns, t)
}

// copySelf puts the program where a box can be shown it.
func copySelf(dir string) (string, error) {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	to := filepath.Join(dir, "client")
	return to, errors.Join(d.Chmod(0o755), write(to, b, 0o755))
}

// write makes a file that is not there yet.
func write(name string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

func bare(self string, with ...string) func(context.Context, ...string) *exec.Cmd {
	return func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self, append(append([]string{roleClient}, with...), args...)...)
		cmd.Env = []string{}
		return cmd
	}
}

func boxed(sunaba, dir, policy, tier string, with []string) func(context.Context, ...string) *exec.Cmd {
	return func(ctx context.Context, args ...string) *exec.Cmd {
		all := []string{"run", "--tier", tier, "--trust", "internal", "--network", "allowlist", "--network-policy", policy, "--resolver", resolverAddr, "--timeout", "3m", "--cpu", "2",
			"--mount", dir + ":" + dir + ":ro", "--", filepath.Join(dir, "client"), roleClient}
		cmd := exec.CommandContext(ctx, sunaba, slices.Concat(all, with, args)...)
		cmd.Env = environment()
		return cmd
	}
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait()
}
