package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// held is what the gateway's process holds, in bytes.
type held struct{ before, after int64 }

// each is what each of n links adds.
func (h held) each(n int) float64 { return float64(h.after-h.before) / float64(n) }

// argvGateway is the name by which the program to measure is its own gateway
// (gate.Argv, in a room that brings a network stack along).
const argvGateway = "sunaba-egress"

// gateway is a process of its own, spoken to as its keeper does.
type gateway struct {
	cmd    *exec.Cmd
	link   *host.Link
	policy json.RawMessage
	seq    uint64
}

func startGateway(sunaba string) (*gateway, error) {
	p, err := rules.FromAllowlist([]string{name + ":" + portTLS})
	if err != nil {
		return nil, err
	}
	ours, theirs, err := host.LinkPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(sunaba)
	cmd.Args, cmd.Env, cmd.Stderr = []string{argvGateway}, []string{}, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	g := &gateway{cmd: cmd, link: ours, policy: p.JSON()}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	_, err = g.ask(control.Request{Op: control.Start, Settings: &control.Settings{Resolvers: []netip.AddrPort{netip.MustParseAddrPort(resolverAddr + ":53")}}})
	if err != nil {
		g.end()
		return nil, fmt.Errorf("cannot start the gateway: %w", err)
	}
	return g, nil
}

func (g *gateway) end() {
	g.link.Close()
	_ = g.cmd.Wait() // it ends with the connection
}

func (g *gateway) ask(req control.Request, files ...*os.File) (*box.Traffic, error) {
	g.seq++
	req.Seq = g.seq
	b, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if err := g.link.Send(b, files...); err != nil {
		return nil, err
	}
	for {
		b, _, err := g.link.Receive()
		if err != nil {
			return nil, err
		}
		var rep control.Reply
		if err := json.Unmarshal(b, &rep); err != nil {
			return nil, err
		}
		if rep.Seq != req.Seq { // an event
			continue
		}
		if rep.Error != "" {
			return nil, errors.New(rep.Error)
		}
		return rep.Traffic, nil
	}
}

func cellName(n int) string { return fmt.Sprint("bench", n) }

// attach hands over the n-th link.
func (g *gateway) attach(n int, l box.Link) error {
	book, err := ledger.Memory(nil)
	if err != nil {
		return err
	}
	defer book.Close()
	_, err = g.ask(control.Request{Op: control.Attach, Cell: cellName(n), Kind: l.Kind, Policy: g.policy, Generation: 1}, l.File, book)
	return err
}

// pss is what the process holds, its share of what others hold, too, included.
func (g *gateway) pss() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", g.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}

// settle is how long the process has to come to rest.
const settle = 2 * time.Second

// holdQuiet attaches links on which nothing is ever sent.
func holdQuiet(o options) (h held, err error) {
	g, err := startGateway(o.sunaba)
	if err != nil {
		return h, err
	}
	defer g.end()
	<-time.After(settle)
	if h.before, err = g.pss(); err != nil {
		return h, err
	}
	for n := range o.quiet {
		ours, theirs, err := nic.Pair()
		if err != nil {
			return h, err
		}
		defer theirs.Close()
		err = g.attach(n, box.Link{File: ours, Kind: box.LinkSeqpacket})
		ours.Close()
		if err != nil {
			return h, err
		}
	}
	<-time.After(settle)
	h.after, err = g.pss()
	return h, err
}

// bulk is what the connection of an active link carries before it is looked at.
const bulk = 8 << 20

// holdActive attaches links of as many network namespaces, from each of which a
// connection to the server is open.
func holdActive(o options, ca string) (h held, err error) {
	g, err := startGateway(o.sunaba)
	if err != nil {
		return h, err
	}
	defer g.end()
	<-time.After(settle)
	if h.before, err = g.pss(); err != nil {
		return h, err
	}
	for n := range o.active {
		end, err := g.occupy(n, ca)
		if err != nil {
			return h, fmt.Errorf("link %d: %w", n, err)
		}
		defer end()
	}
	<-time.After(settle)
	if h.after, err = g.pss(); err != nil {
		return h, err
	}
	for n := range o.active { // or it was no measurement
		t, err := g.ask(control.Request{Op: control.Tell, Cell: cellName(n)})
		if err != nil {
			return h, err
		}
		if t.Open != 1 || t.Received < bulk {
			return h, fmt.Errorf("link %d has %d connections, which have carried %d bytes", n, t.Open, t.Received)
		}
	}
	return h, nil
}

// occupy starts a process whose link has a connection until end.
func (g *gateway) occupy(n int, ca string) (end func(), err error) {
	ours, theirs, err := host.LinkPair()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Stderr = []string{roleLink}, environment(), os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, err
	}
	end = func() { ours.Close(); _ = cmd.Wait() }
	kind, files, err := ours.Receive()
	if err == nil && len(files) != 1 {
		err = errors.New("no link came")
	}
	if err == nil {
		err = g.attach(n, box.Link{File: files[0], Kind: box.LinkKind(kind)})
		files[0].Close()
	}
	if err == nil {
		err = ours.Send([]byte(ca))
	}
	var said []byte
	if err == nil {
		said, _, err = ours.Receive()
	}
	if err == nil && string(said) != "open" {
		err = errors.New(string(said))
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// linked is the process at a link's other end.
func linked() error {
	l, err := host.NewLink(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	made, err := nic.Make(nic.TUN)
	if err != nil {
		return err
	}
	if err := l.Send([]byte(made.Kind), made.File); err != nil {
		return err
	}
	made.File.Close()
	ca, _, err := l.Receive()
	if err != nil {
		return err
	}
	said := "open"
	if err := open(string(ca)); err != nil {
		said = err.Error()
	}
	if err := l.Send([]byte(said)); err != nil {
		return err
	}
	_, _, _ = l.Receive() // until the end
	return nil
}

// open reads an answer over a connection that stays.
func open(ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(box.LinkGateway4, "53"))
	}}
	dialer := &net.Dialer{Resolver: resolver}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: dialer.DialContext}
	c := &http.Client{Transport: tr, Timeout: time.Minute}
	r, err := c.Get(fmt.Sprintf("https://%s/?n=%d", name, bulk))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err == nil && n != bulk {
		err = fmt.Errorf("%d bytes came", n)
	}
	return err
}
