package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// helpers are what a case's lines of Python may call. Each answers with a short text.
// They wait for what comes at last for 100 seconds, less than a call of the daemon may take.
const helpers = `
import json, re, socket, ssl, struct, sys, threading, time
GW = "198.18.0.1"
def name(e):
    return "timeout" if isinstance(e, (TimeoutError, socket.timeout)) else type(e).__name__
def D(host, kind=1, server=GW, port=53, tcp=False, raw=None, wait=100):
    "asks a DNS question"
    q = raw
    if q is None:
        q = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(bytes([len(l)]) + l.encode("latin-1") for l in host.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    try:
        s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM); s.settimeout(wait); s.connect((server, port))
        if tcp:
            s.sendall(struct.pack(">H", len(q)) + q); a = s.recv(4096)[2:]
        else:
            s.send(q); a = s.recv(4096)
    except OSError as e: return name(e)
    if len(a) < 12: return "short"
    return "rcode %d, %d answers" % (a[3] & 15, struct.unpack(">H", a[6:8])[0])
def A(host, family=socket.AF_INET):
    "the first address of a name"
    return socket.getaddrinfo(host, 1, family, socket.SOCK_STREAM)[0][4][0]
def K(host, port, wait=100):
    "a connected socket"
    if isinstance(host, bytes): host = host.decode()
    try: addr = host; socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        try: addr = A(host)
        except socket.gaierror: addr = A(host, socket.AF_INET6)
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET); s.settimeout(wait); s.connect((addr, port)); return s
def C(host, port, wait=100):
    "connects"
    try: K(host, port, wait).close(); return "connected"
    except OSError as e: return name(e)
def R(host, port, data, wait=100):
    "sends bytes and reads an answer"
    try:
        s = K(host, port, wait); s.sendall(data); return "got " + repr(s.recv(4096)[:200])
    except OSError as e: return name(e)
def H(req, host="api.example.com", port=80, wait=100, all=False):
    "sends bytes to a plain HTTP port and says the first line, or all lines that are one"
    got = b""
    try:
        s = K(host, port, wait); s.sendall(req)
        while True:
            b = s.recv(65536)
            got += b
            if not b or not all and b"\r\n\r\n" in got: break
    except OSError as e:
        if not got: return name(e)
    lines = [l.decode("latin-1") for l in re.findall(rb"HTTP/1\.1 [^\r]*", got)]
    return "; ".join(lines) if lines else "nothing" if not got else repr(got[:80])
def G(path, method="GET", more="", host="api.example.com", body="", **k):
    return H(("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (method, path, host, more, body)).encode("latin-1"), host=k.pop("to", "api.example.com"), **k)
def T(sni, host=None, port=443, old=False, send=b"GET /tls HTTP/1.1\r\nHost: x\r\n\r\n"):
    "says hello in TLS"
    try:
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE # before it connects: from then on its hello is waited for
        s = K(host or sni, port)
        if old: c.set_ciphers("ALL:@SECLEVEL=0"); c.minimum_version = ssl.TLSVersion.TLSv1; c.maximum_version = ssl.TLSVersion.TLSv1
        t = c.wrap_socket(s, server_hostname=sni); t.sendall(send); return "got " + repr(t.recv(100))
    except OSError as e: return "closed" if isinstance(e, (ssl.SSLError, ConnectionError, EOFError)) else name(e)
def E(kind, sni, port=443):
    "says hello in TLS with one more extension, and says what comes first of the answer"
    o = ssl.MemoryBIO(); c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    try: c.wrap_bio(ssl.MemoryBIO(), o, server_hostname=sni).do_handshake()
    except ssl.SSLWantReadError: pass
    b = o.read()[9:]; at = 35 + b[34]
    at += 2 + struct.unpack(">H", b[at:at+2])[0]; at += 1 + b[at]
    x = b[at+2:] + struct.pack(">HH", kind, 10) + b"\0\0\1\0\1\7\0\0\0\0"
    b = b[:at] + struct.pack(">H", len(x)) + x
    b = b"\1" + struct.pack(">I", len(b))[1:] + b
    return R(sni, port, b"\x16\3\1" + struct.pack(">H", len(b)) + b)[:20]
def U(addr, port, data=b"x", wait=0.6):
    "sends a datagram"
    try:
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(wait); s.sendto(data, (addr, port)); return "got " + repr(s.recv(100))
    except OSError as e: return name(e)
def M(*names, kind=1):
    "the names that are answered with an address; text of other scripts is sent as it is"
    return [n for n in names if "rcode 0, 1" in D(n.encode().decode("latin-1"), kind)]
def N(addr):
    "a name that the world answers with an address"
    b = socket.inet_pton(socket.AF_INET6 if ":" in addr else socket.AF_INET, addr)
    return ("s" if len(b) > 4 else "a") + b.hex() + ".to.example.com"
def O(*targets, port=443, wait=100):
    "the addresses or names to which connections open, all tried at once"
    import select
    out, open_ = [], {}
    for a in targets:
        try:
            f = socket.AF_INET6 if ":" in a else socket.AF_INET
            i = socket.getaddrinfo(a, port, f if re.fullmatch(r"[0-9a-f.:%a-z]*", a) and (":" in a or re.fullmatch(r"[0-9.]+", a)) else 0, socket.SOCK_STREAM)[0]
            s = socket.socket(i[0], socket.SOCK_STREAM); s.setblocking(False); open_[s] = a
            s.connect(i[4])
        except BlockingIOError: pass
        except OSError: open_.pop(s, None)
    end = time.time() + wait
    while open_ and time.time() < end:
        for s in select.select([], list(open_), [], max(0, end - time.time()))[1]:
            a = open_.pop(s)
            try: s.getpeername(); out.append(a)
            except OSError: pass
            s.close()
    for s in open_: s.close()
    return sorted(out)
def W(msgs, n=1, wait=100):
    "messages to the DNS server over one TCP connection, as they are, and the codes of all answers, of which there will be n"
    s = socket.socket(); s.settimeout(wait); s.connect((GW, 53)); got, out = b"", []
    try:
        for m in msgs: s.sendall(m)
    except OSError: pass # it may have answered all that it does, and ended, before the last one; its answers are there
    try:
        while True:
            b = s.recv(65536)
            if not b: break
            got += b
            while len(got) >= 14 and len(got) >= 2 + struct.unpack(">H", got[:2])[0]:
                k = 2 + struct.unpack(">H", got[:2])[0]; out.append("%d:%d" % (got[5] & 15, struct.unpack(">H", got[8:10])[0])); got = got[k:]
            if len(out) >= n: s.settimeout(0.2)
    except OSError: pass
    return " ".join(out)
def QN(name, kind=1, cls=1, flags=b"\x01\0", counts=b"\0\1\0\0\0\0\0\0", more=b""):
    "a question as bytes"
    return b"\x12\x34" + flags + counts + b"".join(bytes([len(l)]) + l.encode("latin-1") for l in name.split(".")) + b"\0" + struct.pack(">HH", kind, cls) + more
def L2(m): return struct.pack(">H", len(m)) + m
keep = []
def many(n, host, port):
    "tries to have n connections more, all at once: who says nothing on them has them for ten seconds; and says how many there are"
    import select
    a, new, before = A(host), [], len(keep)
    for _ in range(n): s = socket.socket(); s.setblocking(False); s.connect_ex((a, port)); new.append(s)
    for s in new:
        select.select([], [s], [], 100)
        try: s.getpeername(); keep.append(s)
        except OSError: s.close()
    return len(keep) - before
def free():
    for s in keep: s.close()
    keep.clear()
def crowd(want, *all):
    """is many for each of all, and wants so many of each. Those of before may take the gateway
    a moment to end: what is not as wanted is tried again, but never if it is more in all"""
    for _ in range(90):
        if keep: free(); time.sleep(1)
        got = [many(*a) for a in all]
        if got == want or sum(got) > sum(want): break
    return got
def later(fn, want):
    "ends all connections, and says what comes of it in the end, if that is not what is wanted"
    free()
    for _ in range(90):
        got = tries(fn)
        if got == want: break
        time.sleep(1)
    return got
def tries(fn):
    try: return str(fn())
    except Exception as e: return name(e)
`

// loop runs what it is told, one line each.
const loop = helpers + siblingHelpers + `
print("ready", flush=True)
for line in sys.stdin:
    r = tries(lambda: eval(json.loads(line)))
    print(json.dumps(r), flush=True)
`

// subject is a box with a policy, which is told what to try.
type subject struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	errs *strings.Builder
}

// newSubject starts one by `sunaba run`.
func newSubject(t *testing.T, u harness.User, policy string, args ...string) *subject {
	t.Helper()
	file := filepath.Join(harness.Dir(t, u), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Give(t, u, file)
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
	t.Cleanup(cancel)
	all := append([]string{"run", "--network", "allowlist", "--network-policy", file, "--resolver", resolverAddr, "--timeout", "25m"}, args...)
	s := &subject{t: t, cmd: harness.Command(ctx, t, u, append(all, "--", "python3", "-c", loop)...), errs: &strings.Builder{}}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = s.errs
	s.cmd.Dir = "/"
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		s.in.Close()
		if err := s.cmd.Wait(); err != nil || t.Failed() {
			t.Logf("sunaba: %v\n%s", err, s.errs)
		}
	})
	if !s.out.Scan() || s.out.Text() != "ready" {
		t.Fatalf("the box says %q: %v\n%s", s.out.Text(), s.out.Err(), s.errs)
	}
	return s
}

// try evaluates one expression in the box.
func (s *subject) try(expr string) string {
	s.t.Helper()
	b, err := json.Marshal(expr)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.in.Write(append(b, '\n')); err != nil {
		s.t.Fatalf("the box hears nothing: %v\n%s", err, s.errs)
	}
	if !s.out.Scan() {
		s.t.Fatalf("the box has ended: %v\n%s", s.out.Err(), s.errs)
	}
	var out string
	if err := json.Unmarshal(s.out.Bytes(), &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}
