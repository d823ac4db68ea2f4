package limits

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// diskKit are functions that the programs below share.
const diskKit = `
import errno, json, mmap, os, sys
M = 1 << 20
def fill(path, megabytes):
    "writes until done or refused; says how many megabytes there are"
    block = b"x" * M
    with open(path, "ab", 0) as f:
        try:
            for _ in range(megabytes):
                rest = block
                while rest:
                    rest = rest[f.write(rest):]
        except OSError as e:
            return "%d %s" % (f.tell() // M, errno.errorcode[e.errno])
        return "%d ok" % (f.tell() // M)
said = {}
`

const diskPlaces = diskKit + `
said["a"] = fill("/tmp/a", 50)
said["b"] = fill("/workspace/b", 40)
said["refused"] = fill("/var/tmp/c", 40).split()[1]
HOLD
os.unlink("/var/tmp/c")
os.unlink("/tmp/a")
said["given back"] = fill("/home/user/d", 50)
os.unlink("/home/user/d")
fd = os.open("/workspace/sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 10 << 30)
os.pwrite(fd, b"x", 9 << 30)
said["sparse"] = os.stat(fd).st_size >> 30
try:
    os.posix_fallocate(os.open("/workspace/e", os.O_RDWR | os.O_CREAT), 0, 200 * M)
except OSError as e:
    said["fallocate"] = errno.errorcode[e.errno]
sizes = {os.statvfs(p).f_blocks * os.statvfs(p).f_frsize // M for p in ("/tmp", "/var/tmp", "/workspace")}
said["sizes"] = [min(n, 100 if n < 103 else n) for n in sizes]
print(json.dumps(said))
`

func TestDiskIsOneLimitForAllPlaces(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		e := pythonHeld(t, p, diskPlaces, p.hits("disk"), "--disk", "100m")
		want := `{"a": "50 ok", "b": "40 ok", "refused": "ENOSPC", "given back": "50 ok", "sparse": 10, "fallocate": "ENOSPC", "sizes": [100]}` + "\n"
		if e.stdout() != want {
			t.Errorf("got  %s\nwant %s", e.stdout(), want)
		}
	})
}

func TestDiskHoldsTheDefault(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		var flags []string // none: the default is 1 GiB
		if p.inMemory() {
			flags = []string{"--disk", "1g", "--memory", "1536m"}
		}
		e := pythonHeld(t, p, diskKit+`
print(fill("big", 900))
print(fill("big", 200).split()[1])
HOLD
os.unlink("big")`, p.hits("disk"), flags...)
		if e.stdout() != "900 ok\nENOSPC\n" {
			t.Errorf("900 MB and then 200 MB more: %q", e.stdout())
		}
	})
}

func TestDiskIsNotChargedToMemory(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		if p.inMemory() {
			e := run(t, p, "--disk", "400m", "--memory", "64m", "--", "true")
			if e.Error == nil || e.Error.Kind != box.Unusable || e.code != 242 || !strings.Contains(e.Error.Message, "disk 400 MiB is more than memory 64 MiB") {
				t.Errorf("a disk that does not fit into memory: %+v, code %d", e.Error, e.code)
			}
			return
		}
		e := python(t, p, diskKit+`
print(fill("big", 400))
os.unlink("big")`, "--memory", "64m")
		e.exited(t)
		if e.stdout() != "400 ok\n" {
			t.Errorf("400 MB with 64 MB of memory: %q", e.stdout())
		}
	})
}

func TestDiskEndsTheRunOnlyIfAsked(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		kill := []string{"--on-limit", "kill", "--disk", "20m", "--timeout", "120"}
		e := python(t, p, diskKit+`
fill("big", 30)
import time
time.sleep(1000)`, kill...)
		e.check(t, box.DiskLimit, 248, p.end("disk"))
		// Even a program that ends at once when it is refused.
		e = python(t, p, diskKit+`
fill("big", 30)
os._exit(0)`, kill...)
		e.check(t, box.DiskLimit, 248, p.end("disk"))
		// A store into a mapped file is no call that could be refused.
		mapped := diskKit + `
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 30 * M)
m = mmap.mmap(fd, 30 * M)
for i in range(0, 30 * M, 4096):
    m[i] = 1`
		e = python(t, p, mapped, kill...)
		e.check(t, box.DiskLimit, 248, ended("disk", "size of the writable store"))
		e = python(t, p, mapped, "--disk", "20m")
		e.check(t, box.Signaled, 128+7, box.LimitHit{Limit: "disk", Source: "size of the writable store"})
	})
}

func TestNumberOfFiles(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		code := diskKit + `
def make(what):
    n = 0
    try:
        while True:
            what(str(n))
            n += 1
    except OSError as e:
        said["errno"] = errno.errorcode[e.errno]
    return n
said["files"] = make(lambda n: open("f" + n, "x").close())
for i in range(said["files"]): os.unlink("f%d" % i)
said["folders"] = make(lambda n: os.mkdir("d" + n))
os.rmdir("d0")
said["again"] = make(lambda n: os.symlink("/", "/tmp/s" + n))
print(json.dumps(said))`
		e := python(t, p, code, "--max-files", "200")
		e.exited(t, p.hit("max_files"))
		var said struct {
			Files, Folders, Again int
			Errno                 string
		}
		if err := json.Unmarshal([]byte(e.stdout()), &said); err != nil {
			t.Fatalf("%v: %s", err, e.stdout())
		}
		// A few inodes are the layer's own: its root, the working folder and
		// the folders of the image in which something was made.
		if said.Files < 190 || said.Files >= 200 || said.Folders != said.Files || said.Again > 1 || said.Errno != "ENOSPC" {
			t.Errorf("with 200 files: %+v", said)
		}
		e = python(t, p, code, "--max-files", "200", "--on-limit", "kill", "--timeout", "120")
		e.check(t, box.DiskLimit, 248, p.end("max_files"))
	})
}

// Shared memory has a size of its own, within the memory limit. It is no disk.
func TestSharedMemoryWorksAndIsBounded(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		e := python(t, p, diskKit+`
from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=M)
s.buf[0] = 7
other = shared_memory.SharedMemory(name=s.name)
print("shared", other.buf[0])
other.close(); s.close(); s.unlink()
size = os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize // M
print("size", size, fill("/dev/shm/x", size + 5))`, "--memory", "128m", "--on-limit", "kill")
		e.exited(t)
		if e.stdout() != "shared 7\nsize 32 32 ENOSPC\n" {
			t.Errorf("got %q, %s", e.stdout(), e.StderrClean)
		}
	})
}

func TestEveryLimitThatWasTouchedIsListed(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		// Twice each: one line for each limit all the same.
		code := diskKit + strings.Replace(countTasks, "os._exit(0)", "", 1) + `
for f in files: os.close(f)
fill("big", 30)
fill("big", 1)
HOLD
os.unlink("big")
for n in range(400):
    try:
        open("f%d" % n, "x").close()
    except OSError:
        pass
os._exit(0)`
		pythonHeld(t, p, code, p.hits("max_processes", "max_open_files", "disk", "max_files"), "--max-processes", "8", "--disk", "20m", "--max-files", "200")
	})
}
