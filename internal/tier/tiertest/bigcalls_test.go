package tiertest

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// calls is what the programs of this file begin with.
const calls = `
import ctypes, hashlib, mmap, os, sys
M = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.getrandom.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.process_vm_readv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
class iov(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
class iocb(ctypes.Structure): _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint64), ("op", ctypes.c_uint16), ("prio", ctypes.c_int16),
    ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64), ("n", ctypes.c_uint64), ("off", ctypes.c_int64), ("r2", ctypes.c_uint64), ("fl", ctypes.c_uint64)]
def anon(n, flags=0x22): return libc.mmap(None, n, 3, flags, -1, 0)
def said(r): print(r if r >= 0 else os.strerror(ctypes.get_errno()))
zero = os.open("/dev/zero", 0)
`

// One call that names more memory than there is ends its program, or is refused,
// and never the box.
func TestACallForMoreMemoryThanThereIsEndsNoBox(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are named by their numbers here")
	}
	p := newPlace(t, box.TierGvisor)
	b := p.create(t, spec())
	g := use(t, b)
	for name, row := range map[string]struct{ code, says string }{ // says nothing: the program is ended
		"getrandom":            {`said(libc.getrandom(anon(1 << 30), 1 << 30, 0))`, ""},
		"a populated mapping":  {`said(min(anon(1 << 30, 0x22 | 0x8000), 1))`, "1"},
		"fallocate of a memfd": {`said(libc.posix_fallocate(os.memfd_create("x"), ctypes.c_long(0), ctypes.c_long(1 << 30)))`, "28"},
		"another's memory": {`x, y = iov(anon(1 << 30), 1 << 30), iov(anon(1 << 30), 1 << 30)
said(libc.process_vm_readv(os.getpid(), ctypes.byref(x), 1, ctypes.byref(y), 1, 0))`, "Cannot allocate memory"},
		"a read for later": {`ctx = ctypes.c_ulong(0); libc.syscall(206, 8, ctypes.byref(ctx))
c = iocb(fd=zero, buf=anon(1 << 30), n=1 << 30); q = (ctypes.c_void_p * 1)(ctypes.addressof(c))
said(libc.syscall(209, ctx, ctypes.c_long(1), q))`, "Resource temporarily unavailable"},
		"a file sent to memory": {`f = open("big", "wb"); f.truncate(1 << 30); m, b, n = os.memfd_create("x"), os.open("big", 0), 0
while n < 1 << 30: n += os.sendfile(m, b, n, 1 << 30)`, ""},
	} {
		end, out := ended(t, g, start(t, g, "python3", "-c", calls+row.code).PID)
		out = strings.TrimSpace(out)
		if row.says == "" && end.Cause != box.OutOfMemory || row.says != "" && (end.Cause != box.Exited || out != row.says) {
			t.Errorf("%s: %+v, %q; want %q", name, end, out, row.says)
		}
		select {
		case <-b.Ended():
			t.Fatalf("%s: the box has ended", name)
		default:
		}
	}
	a, err := b.Account(t.Context())
	if err != nil || a.MemoryPeak > 192<<20+lastingRoom/2 {
		t.Errorf("the peak is %d MiB, which is more than half of what is beyond the limit (%v)", a.MemoryPeak>>20, err)
	}
	run(t, g, "true")
	p.destroy(t, b)
}

// lastingRoom is what a box of tier gvisor that lasts has beyond its memory limit.
const lastingRoom = 128 << 20

// same reads and writes in a box that has no memory left for a whole buffer.
const same = `
N, B = 8*M, 60*M
def want(a, b): return hashlib.shake_128(b"x").digest(N)[a:b]
open("f", "wb").write(want(0, N))
ballast = mmap.mmap(-1, 90*M)
for i in range(0, 90*M, 4096): ballast[i] = 1
buf = mmap.mmap(-1, B)
for i in range(0, B, 4096): buf[i] = 1 # some 30 MiB are left, which is less than what each call names
v = memoryview(buf)
fd = os.open("f", os.O_RDONLY)
def same(name, n, a=0):
    if n != N - a or hashlib.md5(v[:n]).digest() != hashlib.md5(want(a, N)).digest(): print(name, n)
    v[:n] = bytes(n)
def again(): os.lseek(fd, 0, os.SEEK_SET)
at = ctypes.addressof((ctypes.c_char * B).from_buffer(buf))
same("read", libc.read(fd, at, B))
if os.read(fd, 1) != b"": print("not at the end")
again(); same("one of readv", os.readv(fd, [v]))
again(); same("readv", os.readv(fd, [v[:M+1], v[M+1:5*M], v[5*M:]]))
same("one of preadv", os.preadv(fd, [v], M+3), M+3)
same("preadv", os.preadv(fd, [v[:2*M], v[2*M:]], 7), 7)
again(); os.readv(fd, [v])
for name, off, call in (("write", 0, lambda: os.write(o, v)), ("writev", 0, lambda: os.writev(o, [v[:N], v[N:]])), ("pwrite", 5, lambda: os.pwrite(o, v, 5))):
    o = os.open("o", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    n, h = call(), hashlib.md5()
    for i in range(0, B, M): h.update(os.pread(o, M, i + off))
    if n != B or os.fstat(o).st_size != B + off or h.digest() != hashlib.md5(v).digest(): print(name, n, os.fstat(o).st_size)
    os.close(o)
print("done")
`

// What is done in pieces for want of memory gives the same bytes.
func TestCallsInAFullBoxGiveTheSameBytes(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	s := spec()
	s.Limits.Disk = 128 << 20
	b := p.create(t, s)
	g := use(t, b)
	if end, out := ended(t, g, start(t, g, "python3", "-c", calls+same).PID); out != "done\n" {
		t.Errorf("%+v, %s", end, out)
	}
	p.destroy(t, b)
}
