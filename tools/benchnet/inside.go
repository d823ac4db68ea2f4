package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peer is one way from the program to the server.
type peer struct {
	name  string
	cmd   func(ctx context.Context, args ...string) *exec.Cmd
	turns []turn
	bad   []string
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
	w, err := makeWorld()
	if err != nil {
		return err
	}
	defer end(w)
	peers := []*peer{
		{name: "no box, direct", cmd: bare(self, "-at", serverAddr+":443")},
		{name: "box of tier process", cmd: boxed(o.sunaba, dir, "process")},
		{name: "box of tier gvisor", cmd: boxed(o.sunaba, dir, "gvisor")},
	}
	squid, err := startSquid(dir)
	if err != nil {
		fmt.Printf("squid is left out: %v\n", err)
	} else {
		defer end(squid)
		peers = append(peers, &peer{name: "no box, squid splices", cmd: bare(self, "-proxy", "127.0.0.1:3128")})
	}
	extra := []string{"-conns", strconv.Itoa(o.conns), "-requests", strconv.Itoa(o.ping), "-megabytes", strconv.Itoa(o.megabytes)}
	for range o.rounds {
		for _, i := range rand.Perm(len(peers)) {
			peers[i].take(extra)
		}
	}
	return report(o, peers)
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

func boxed(sunaba, dir, tier string) func(context.Context, ...string) *exec.Cmd {
	return func(ctx context.Context, args ...string) *exec.Cmd {
		all := []string{"run", "--tier", tier, "--trust", "internal", "--network", "allowlist", "--allow", name + ":443", "--resolver", resolverAddr, "--timeout", "3m", "--cpu", "2",
			"--mount", dir + ":/bench:ro", "--", "/bench/client", roleClient}
		cmd := exec.CommandContext(ctx, sunaba, append(all, args...)...)
		cmd.Env = environment()
		return cmd
	}
}

// startSquid starts one that reads the name of a hello and passes all on.
func startSquid(dir string) (*exec.Cmd, error) {
	path, err := exec.LookPath("squid")
	if err != nil {
		return nil, err
	}
	pem := filepath.Join(dir, "squid.pem")
	openssl := exec.Command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", pem, "-out", pem+".crt", "-days", "2", "-subj", "/CN=squid")
	openssl.Env = environment()
	if out, err := openssl.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make its certificate: %w: %s", err, out)
	}
	crt, err := os.ReadFile(pem + ".crt")
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(pem)
	if err != nil {
		return nil, err
	}
	conf := strings.NewReplacer("DIR", dir, "NAME", name, "RESOLVER", resolverAddr).Replace(`http_port 127.0.0.1:3128 ssl-bump cert=DIR/both.pem generate-host-certificates=off
acl ours ssl::server_name NAME
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump splice ours
ssl_bump terminate all
acl to dstdomain NAME
http_access allow to
http_access deny all
cache deny all
dns_nameservers RESOLVER
pid_filename none
cache_log /dev/null
access_log none
shutdown_lifetime 1 seconds
`)
	for file, text := range map[string][]byte{"both.pem": append(key, crt...), "squid.conf": []byte(conf)} {
		if err := write(filepath.Join(dir, file), text, 0o644); err != nil { // it reads them as a user of its own
			return nil, err
		}
	}
	// The service's name is in those of its shared memory, of which a killed one leaves some.
	service := "benchnet" + strconv.Itoa(os.Getpid())
	cmd := exec.Command(path, "-N", "-d", "1", "-n", service, "-f", filepath.Join(dir, "squid.conf"))
	var log bytes.Buffer
	cmd.Env, cmd.Stderr = environment(), &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		<-tick.C
		if c, err := net.Dial("tcp", "127.0.0.1:3128"); err == nil {
			return cmd, c.Close()
		}
	}
	end(cmd)
	text := log.String()
	return nil, errors.New("cannot start it: " + text[max(0, len(text)-500):])
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait()
}
