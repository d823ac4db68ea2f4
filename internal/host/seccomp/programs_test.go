package seccomp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const programPath = "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin"

// execProgram is the child that becomes another program.
func execProgram(args []string) error { return syscall.Exec(args[0], args, os.Environ()) }

// TestRealProgramsWork runs what people run, with nothing around it but the
// filter: a call too many refused shows here first.
func TestRealProgramsWork(t *testing.T) {
	for _, p := range []struct{ name, program, script, want string }{
		{"a shell's pipelines", "bash", shellScript, "3 sub here\n"},
		{"perl", "perl", perlScript, "child said 42, pair said 7\n"},
		{"python", "python3", pythonScript, "ok 45 b'HELLO' b'echo' 42 pty\n"},
		{"node", "node", nodeScript, "200 hello 42 child\n"},
		{"a C compiler and its program", "bash", compilerScript, "4 threads\n"},
		{"git", "bash", gitScript, "1 one\n"},
		{"the go command", "bash", `mkdir -p "$HOME/.config/go/telemetry"; echo off > "$HOME/.config/go/telemetry/mode"; go version | cut -d' ' -f1-2`, "go version\n"},
		{"java", "bash", `java -Xshare:auto -version 2>&1 | grep -c -i version`, "1\n"},
	} {
		t.Run(p.name, func(t *testing.T) {
			for _, tool := range append(tools(p.script), p.program) {
				if look(tool) == "" {
					t.Skipf("%s is not installed in %s", tool, programPath)
				}
			}
			got := map[string]string{}
			for _, filtered := range []string{"this thread", "unfiltered"} {
				dir := t.TempDir()
				flag := map[string]string{"node": "-e", "perl": "-e"}[p.program]
				if flag == "" {
					flag = "-c"
				}
				out, _, err := run{name: "exec", filtered: filtered, args: []string{look(p.program), flag, p.script},
					env: []string{"PATH=" + programPath, "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C", "GOCACHE=" + dir, "GOTOOLCHAIN=local"}}.start()
				if err == nil && string(out) == p.want && filtered == "this thread" {
					return
				}
				got[filtered] = fmt.Sprintf("%q (%v)", out, err)
			}
			t.Errorf("under the filter: %s\nwithout: %s\nwant %q", got["this thread"], got["unfiltered"], p.want)
		})
	}
}

// tools are the programs that a script needs and a minimal system lacks.
func tools(script string) (out []string) {
	for _, name := range []string{"gcc", "git", "go", "java"} {
		if strings.Contains(script, name+" ") {
			out = append(out, name)
		}
	}
	return out
}

func look(name string) string {
	for _, dir := range strings.Split(programPath, ":") {
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

const shellScript = `
set -eu
last=$(for i in 1 2 3; do echo $i; done | sort -r | head -n 1)
sub=$(cat <(echo sub))
sleep 0 & wait
cd "$TMPDIR"; mkfifo p; (echo here > p) & read -r word < p; wait
ls -l / > listing; cp listing copy; mv copy moved; ln -s moved link; test -s link; rm -f moved
echo "$last $sub $word"`

const perlScript = `
use Socket; use POSIX;
pipe(my $r, my $w); my $pid = fork();
if (!$pid) { close $r; syswrite $w, 42; POSIX::_exit(0) }
close $w; my $said = <$r>; waitpid $pid, 0;
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!;
syswrite $a, 7; sysread $b, my $seven, 1;
print "child said $said, pair said $seven\n";`

const pythonScript = `
import asyncio, ctypes, mmap, multiprocessing, os, pty, socket, ssl, subprocess, tempfile, threading
total = 0
lock = threading.Lock()
def add(n):
    global total
    with lock: total += n
threads = [threading.Thread(target=add, args=(n,)) for n in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]

async def main():
    async def serve(reader, writer):
        writer.write((await reader.read(5)).upper()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'hello')
    heard = await reader.read()
    p = await asyncio.create_subprocess_exec('cat', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await p.communicate(b'echo')
    return heard, out
heard, out = asyncio.run(main())

def answer(q): q.put(42)
q = multiprocessing.get_context('fork').Queue()
p = multiprocessing.get_context('fork').Process(target=answer, args=(q,)); p.start(); got = q.get(); p.join()

subprocess.run(['sh', '-c', 'exit 0'], check=True)
with tempfile.TemporaryFile() as f:
    f.write(b'x' * 4096); f.flush()
    m = mmap.mmap(f.fileno(), 4096); m.close()
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.close()
assert len(socket.getaddrinfo('127.0.0.1', 80)) > 0 and socket.if_nameindex()
assert ctypes.CDLL(None).getppid() == os.getppid() and os.urandom(8) and os.sched_getaffinity(0)
master, slave = pty.openpty(); os.write(slave, b'pty')
print('ok', total, heard, out, got, os.read(master, 3).decode())`

const nodeScript = `
const http = require('http'), { Worker } = require('worker_threads'), { execFileSync } = require('child_process');
const server = http.createServer((q, r) => r.end('hello')).listen(0, '127.0.0.1', () => {
  http.get({ port: server.address().port, agent: false }, r => {
    let body = '';
    r.on('data', d => body += d).on('end', () => {
      server.close();
      new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true })
        .on('message', n => console.log(r.statusCode, body, n, execFileSync('echo', ['child']).toString().trim()));
    });
  });
});`

const compilerScript = `
cd "$TMPDIR" && cat > t.c <<'C'
#include <pthread.h>
#include <stdio.h>
static int n; static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *f(void *p) { pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); return p; }
int main(void) { pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, f, 0);
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0); printf("%d threads\n", n); }
C
gcc -O1 -pthread -o t t.c && ./t`

const gitScript = `
cd "$TMPDIR" && git init -q r && cd r && echo one > f && git add f &&
git -c user.name=a -c user.email=a@b commit -q -m one && git gc -q &&
git clone -q . ../c && cd ../c && echo "$(git rev-list --count HEAD) $(cat f)"`
