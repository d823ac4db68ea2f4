package link_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// inside says to a child of this test which kind of wire it shall make.
const inside = "SUNABA_TEST_WIRE"

// The two kinds of wire whose other end is the host's kernel: bytes go both
// ways, questions are answered, and nothing is lost to a checksum.
func TestTheHostsKernelAtTheOtherEnd(t *testing.T) {
	if kind := os.Getenv(inside); kind != "" {
		child(t, kind)
		return
	}
	for _, kind := range []box.LinkKind{box.LinkTUN, box.LinkPacket} {
		t.Run(string(kind), func(t *testing.T) {
			if f, err := os.OpenFile(nic.TUN, os.O_RDWR, 0); kind == box.LinkTUN && err != nil {
				t.Skipf("this host lets nobody here open a TUN device: %v", err)
			} else if err == nil {
				f.Close()
			}
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestTheHostsKernelAtTheOtherEnd$", "-test.v", "-test.timeout=10m")
			cmd.Env = append(os.Environ(), inside+"="+string(kind))
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("all is well")) {
				t.Fatalf("%v:\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// echo answers questions with themselves and connections with what they send.
type echo struct{}

func (echo) DNS(q []byte) []byte { return append([]byte(nil), q...) }

func (echo) TCP(f *link.Flow) {
	if f.Dst.Port() == 1 {
		return
	}
	c, err := f.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(c, c)
}

func child(t *testing.T, kind string) {
	var names []string
	if kind == string(box.LinkTUN) {
		names = []string{nic.TUN}
	}
	made, err := nic.Make(names...)
	if err != nil {
		t.Fatal(err)
	}
	if string(made.Kind) != kind {
		t.Fatalf("a wire of kind %s was made", made.Kind)
	}
	fd, err := syscall.Dup(int(made.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	cfg := link.Config{FD: fd, Kind: link.TUN, Addresses: link.Plan()}
	if kind == string(box.LinkPacket) {
		cfg.Kind = link.Packet
		name, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		mac, err := net.ParseMAC(box.LinkBoxMAC)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Interface, cfg.PeerMAC = name.(*unix.SockaddrLinklayer).Ifindex, [6]byte(mac)
	}
	l, err := link.Open(cfg, echo{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Run(context.Background()) }()

	u, err := net.Dial("udp", "8.8.8.8:53")
	if err != nil {
		t.Fatal(err)
	}
	_ = u.SetDeadline(time.Now().Add(time.Minute))
	_, _ = u.Write([]byte("a question"))
	buf := make([]byte, 100)
	if n, err := u.Read(buf); err != nil || string(buf[:n]) != "a question" {
		t.Fatalf("the answer is %q, %v; %+v", buf[:n], err, l.Counts())
	}
	for _, to := range []string{"203.0.113.7:443", "[2001:db8::7]:443"} {
		c, err := net.DialTimeout("tcp", to, time.Minute)
		if err != nil {
			t.Fatalf("%s: %v; %+v", to, err, l.Counts())
		}
		_ = c.SetDeadline(time.Now().Add(4 * time.Minute))
		const size = 64 << 20
		begin := time.Now()
		block := make([]byte, 1<<18)
		for i := range block {
			block[i] = byte(i ^ i>>8 ^ i>>16)
		}
		go func() {
			for range size / len(block) {
				_, _ = c.Write(block)
			}
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		want, got := sha256.New(), sha256.New()
		for range size / len(block) {
			want.Write(block)
		}
		n, err := io.Copy(got, c)
		if err == nil && n == size && !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Fatalf("%s: other bytes came back", to)
		}
		if err != nil || n != size {
			t.Fatalf("%s: %d bytes came back, %v; %+v", to, n, err, l.Counts())
		}
		fmt.Printf("%s: %.0f MB/s there and back\n", to, float64(size)/1e6/time.Since(begin).Seconds())
		c.Close()
	}
	if _, err := net.DialTimeout("tcp", "203.0.113.7:1", time.Minute); err == nil || !bytes.Contains([]byte(err.Error()), []byte("refused")) {
		t.Errorf("what is refused: %v", err)
	}
	fmt.Printf("%+v\nall is well\n", l.Counts())
}
