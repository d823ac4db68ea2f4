package limits

import (
	"fmt"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// Memory has many forms, and whoever counts it has to know them all. On tier
// process that is a control group's kernel, or a watchdog that adds up what it is
// told in different places.
func TestMemoryIsCountedInEveryForm(t *testing.T) {
	const kit = `
import ctypes, mmap, os, time
M = 1 << 20
libc = ctypes.CDLL(None)
def memfd():
    fd = os.memfd_create("x")
    for _ in range(150): os.write(fd, bytes(M))
`
	over := map[string]string{
		"a file that only a descriptor names": `memfd()`,
		"segments that nobody is attached to": `
libc.shmat.restype = ctypes.c_void_p
for _ in range(15):
    id = libc.shmget(0, 10 * M, 0o1600)
    at = ctypes.c_void_p(libc.shmat(id, 0, 0))
    ctypes.memset(at, 1, 10 * M)
    libc.shmdt(at)`,
		"anonymous memory that is shared": `
m = mmap.mmap(-1, 150 * M)
for i in range(0, 150 * M, 4096): m[i] = 1`,
		"many processes with a little each": `
for _ in range(20):
    if os.fork() == 0:
        x = bytes(8 * M)
        x = bytearray(8 * M)
        time.sleep(200)`,
		"processes that hide from others of their user": `
PR_SET_DUMPABLE = 4
libc.prctl(PR_SET_DUMPABLE, 0)
m = mmap.mmap(-1, 60 * M)
x = bytearray(60 * M)
for i in range(0, 60 * M, 4096): m[i] = 1`,
	}
	within := map[string]string{
		"the same pages in many processes": `
x = bytearray(30 * M)
for _ in range(20):
    if os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
time.sleep(0.5)`,
		"address space that is not used": `
ms = [mmap.mmap(-1, 1 << 30) for _ in range(16)]
time.sleep(0.2)`,
	}
	const inFiles = `
with open("/tmp/x", "wb", 0) as f:
    for _ in range(40): f.write(bytes(M))
x = bytearray(40 * M)`
	onProcess(t, func(t *testing.T, p place) {
		flags := []string{"--memory", "64m", "--timeout", "120", "--disk", "50m"}
		try := func(name, code string, cause box.Cause) {
			t.Run(name, func(t *testing.T) {
				if cause == box.Exited {
					python(t, p, kit+code, flags...).exited(t)
					return
				}
				e := python(t, p, kit+code+"\ntime.sleep(200)", flags...)
				e.check(t, cause, 246, ended("memory", memorySource(t, p)))
			})
		}
		for name, code := range over {
			try(name, code, box.OutOfMemory)
		}
		for name, code := range within {
			try(name, code, box.Exited)
		}
		// An ordinary user's files are memory; root's are on a disk.
		if p.user == harness.Ordinary {
			t.Run("files that leave next to nothing are read all the same", func(t *testing.T) {
				const size = 63<<20 + 512<<10
				e := run(t, p, "--memory", "64m", "--disk", "64m", "--", "sh", "-c", "head -c "+fmt.Sprint(size)+" /dev/zero > f")
				e.check(t, box.Exited, 0, box.LimitHit{Limit: "disk", Source: p.source("disk")})
				if len(e.Artifacts) != 1 || e.Artifacts[0].Size != size || e.Artifacts[0].Error != "" {
					t.Errorf("got %+v, %s", e.Artifacts, e.ArtifactsError)
				}
			})
			try("files and memory together", inFiles, box.OutOfMemory)
		} else {
			try("files and memory apart", inFiles, box.Exited)
		}
	})
}
