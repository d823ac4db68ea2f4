package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const squidAddr = "127.0.0.1:3128"

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
	conf := strings.NewReplacer("DIR", dir, "AT", squidAddr, "NAME", name, "RESOLVER", resolverAddr).Replace(`http_port AT ssl-bump cert=DIR/both.pem generate-host-certificates=off
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
		if c, err := net.Dial("tcp", squidAddr); err == nil {
			return cmd, c.Close()
		}
	}
	end(cmd)
	text := log.String()
	return nil, errors.New("cannot start it: " + text[max(0, len(text)-500):])
}
