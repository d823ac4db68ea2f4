package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The world's plan. The address is a public one, since no other is reached; it is
// the namespace's own.
const (
	name              = "bench.example.com"
	serverAddr        = "93.184.215.14"
	resolverAddr      = "9.9.9.10"
	hereIP, thereIP   = "10.9.0.1", "10.9.0.2"
	hereEnd, thereEnd = "up0", "down0"
)

// makeWorld starts the server in a namespace of its own and connects it.
func makeWorld(dir string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Stderr = []string{roleWorld, dir}, environment(), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = ip("link set lo up", "link add "+hereEnd+" type veth peer name "+thereEnd, fmt.Sprintf("link set %s netns %d", thereEnd, cmd.Process.Pid),
		"addr add "+hereIP+"/30 dev "+hereEnd, "link set "+hereEnd+" up", "route add default via "+thereIP)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(in, "go")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		return nil, fmt.Errorf("cannot start the server: it says %q, %w", line, err)
	}
	return cmd, nil
}

func ip(lines ...string) error {
	for _, l := range lines {
		cmd := exec.Command("ip", strings.Fields(l)...)
		cmd.Env = environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot ip %s: %w: %s", l, err, out)
		}
	}
	return nil
}

func world(args []string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	err := ip("link set lo up", "addr add "+thereIP+"/30 dev "+thereEnd, "link set "+thereEnd+" up", "addr add "+serverAddr+"/32 dev lo", "addr add "+resolverAddr+"/32 dev lo")
	if err != nil {
		return err
	}
	pc, err := net.ListenPacket("udp", resolverAddr+":53")
	if err != nil {
		return err
	}
	go answer(pc)
	return listen(args[0], serverAddr)
}

// near is the server once more, on loopback of the namespace that the clients are in.
func near(args []string) error { return listen(args[0], nearAddr) }

const nearAddr = "127.0.0.1"

// listen serves at the addresses until it fails, and says when it does.
func listen(dir string, addrs ...string) error {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return err
	}
	s := http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: time.Minute}
	failed := make(chan error)
	for _, a := range addrs {
		for _, port := range []string{portTLS, portHTTP, portRaw} {
			l, err := net.Listen("tcp", net.JoinHostPort(a, port))
			if err != nil {
				return err
			}
			if port == portTLS {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
			}
			go func() { failed <- s.Serve(l) }()
		}
	}
	fmt.Println("up")
	return <-failed
}

// The server's ports, one for each mode of the gateway's, and its files.
const (
	portTLS, portHTTP, portRaw = "443", "80", "5432"
	certFile, keyFile          = "server.pem", "server.key"
)

// serve sends as many bytes as are asked for, after reading all that come.
func serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	w.Header().Set("Content-Length", strconv.Itoa(n))
	for block := make([]byte, 1<<18); n > 0; n -= len(block) {
		if _, err := w.Write(block[:min(n, len(block))]); err != nil {
			return
		}
	}
}

// answer says for every name that it is the server's.
func answer(pc net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
		if q.Questions[0].Type == dnsmessage.TypeA {
			a.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 300},
				Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(serverAddr).To4())}}}
		}
		if b, err := a.Pack(); err == nil {
			_, _ = pc.WriteTo(b, from)
		}
	}
}

// makeCertificate writes the server's certificate, which is its own authority, and
// its key.
func makeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(write(filepath.Join(dir, certFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		write(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
