"""Python: venv, processes, shared memory, sqlite, ssl, pipes, threads, time zones."""
import asyncio
import concurrent.futures
import ctypes
import decimal
import hashlib
import http.server
import json
import locale
import mmap
import multiprocessing as mp
import multiprocessing.shared_memory
import os
import pathlib
import pty
import secrets
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
import urllib.request
import zoneinfo
from datetime import datetime


def venv():
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "v"], check=True)
    out = subprocess.run(["v/bin/python", "-c", "import sys; print(sys.prefix)"], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == os.path.abspath("v"), out


def square(n):
    return n * n


def increment(counter, lock, name):
    shm = mp.shared_memory.SharedMemory(name)
    for _ in range(100):
        with lock:
            counter.value += 1
            shm.buf[0] = (shm.buf[0] + 1) % 256
    shm.close()


def processes():
    with mp.Pool(3) as pool:
        assert pool.map(square, range(100)) == [n * n for n in range(100)]
    for method in ("fork", "spawn", "forkserver"):
        ctx = mp.get_context(method)
        q = ctx.Queue()
        p = ctx.Process(target=q.put, args=(method,))
        p.start()
        assert q.get(timeout=60) == method
        p.join()
        assert p.exitcode == 0
    counter, lock = mp.Value("i", 0, lock=False), mp.Lock()
    shm = mp.shared_memory.SharedMemory(create=True, size=4096)
    ps = [mp.Process(target=increment, args=(counter, lock, shm.name)) for _ in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    assert counter.value == 300 and shm.buf[0] == 300 % 256, (counter.value, shm.buf[0])
    shm.close()
    shm.unlink()
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert sum(pool.map(square, range(10))) == 285


def write_rows(n):
    with sqlite3.connect("data.db", timeout=60) as db:
        for i in range(20):
            db.execute("INSERT INTO t VALUES (?, ?)", (n, i))
            db.commit()


def database():
    db = sqlite3.connect("data.db")
    assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    db.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
    db.commit()
    ps = [mp.Process(target=write_rows, args=(n,)) for n in range(4)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    assert db.execute("SELECT count(*), sum(b) FROM t").fetchone() == (80, 760)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with db:
        db.executemany("INSERT INTO t VALUES (?, ?)", ((i, i) for i in range(10000)))
    assert db.execute("SELECT count(*) FROM t WHERE a > 9000").fetchone() == (999,)
    copy = sqlite3.connect("copy.db")
    db.backup(copy)
    copy.execute("VACUUM")


def crypto():
    assert ssl.create_default_context().cert_store_stats()["x509_ca"] > 50
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert hashlib.sha3_256(b"").hexdigest().startswith("a7ffc6f8")
    assert len(secrets.token_bytes(64)) == 64 and len(os.getrandom(16)) == 16


def pipes():
    data = os.urandom(3 << 20)
    p = subprocess.run("tee >(sha256sum >&2) | cat", shell=True, executable="/bin/bash", input=data, capture_output=True, check=True)
    assert p.stdout == data
    p = subprocess.Popen(["sleep", "100"], start_new_session=True)
    os.killpg(p.pid, signal.SIGKILL)
    assert p.wait() == -signal.SIGKILL
    try:
        subprocess.run(["sleep", "100"], timeout=0.3)
        assert False
    except subprocess.TimeoutExpired:
        pass
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("stty", ["stty", "size"])
    out = b""
    try:
        while b"\n" not in out:
            out += os.read(fd, 100)
    except OSError:
        pass
    assert os.waitpid(pid, 0)[1] == 0 and b"0 0" in out, out


def threads():
    barrier = threading.Barrier(29)
    ts = [threading.Thread(target=barrier.wait, args=(60,)) for _ in range(28)]
    [t.start() for t in ts]
    barrier.wait(60)
    [t.join() for t in ts]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(square, range(1000)))[-1] == 999 * 999


def signals():
    got = []
    signal.signal(signal.SIGUSR1, lambda *a: got.append("usr1"))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGALRM, lambda *a: got.append("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # again: the first may come before the pause
    signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert got[0] == "usr1" and set(got[1:]) == {"alarm"}, got
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    os.kill(os.getpid(), signal.SIGRTMIN)
    assert signal.sigtimedwait([signal.SIGRTMIN], 10).si_signo == signal.SIGRTMIN
    fd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(fd, 0)


class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *a):
        pass


async def talk():
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    r, w = await asyncio.open_connection("127.0.0.1", port)
    assert await r.read() == b"hi"
    w.close()
    server.close()
    p = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await p.communicate(b"x" * 100000)
    assert len(out) == 100000


def sockets():
    with http.server.ThreadingHTTPServer(("localhost", 0), Echo) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://localhost:{s.server_port}/path") as r:
            assert r.read() == b"/path"
        s.shutdown()
    asyncio.run(talk())
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryFile() as f:
        f.write(b"passed")
        f.flush()
        socket.send_fds(a, [b"fd"], [f.fileno()])
        _, fds, _, _ = socket.recv_fds(b, 10, 1)
        assert os.pread(fds[0], 10, 0) == b"passed"
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0abstract")
    s.listen()
    c = socket.socket(socket.AF_UNIX)
    c.connect("\0abstract")
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4] == os.getpid().to_bytes(4, sys.byteorder)
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as s:
        socket.create_connection(s.getsockname()[:2]).close()
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    assert socket.gethostbyname(socket.gethostname()).startswith("127.")


def memory():
    with open("map", "w+b") as f:
        f.truncate(1 << 20)
        with mmap.mmap(f.fileno(), 0) as m:
            m[4096:4100] = b"page"
            m.flush()
        f.seek(4096)
        assert f.read(4) == b"page"
    fd = os.memfd_create("name", os.MFD_ALLOW_SEALING)
    os.write(fd, b"x")
    m = mmap.mmap(-1, 8 << 20)
    pid = os.fork()
    if pid == 0:
        m[0] = 7
        os._exit(0)
    os.waitpid(pid, 0)
    assert m[0] == 7
    libc = ctypes.CDLL(None)
    assert libc.strlen(b"four") == 4
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(square)(5) == 25


def inotify():
    libc = ctypes.CDLL(None)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    os.mkdir("watched")
    assert libc.inotify_add_watch(fd, b"watched", 0x100) >= 0  # IN_CREATE
    pathlib.Path("watched/name").touch()
    assert select.select([fd], [], [], 10)[0] == [fd]
    assert b"name" in os.read(fd, 1000)


def proc():
    me = pathlib.Path("/proc/self")
    status = dict(l.split(":", 1) for l in me.joinpath("status").read_text().splitlines() if ":" in l)
    assert int(status["Pid"]) == os.getpid() and "VmRSS" in status and "Threads" in status
    assert me.joinpath("exe").resolve() == pathlib.Path(sys.executable).resolve()
    assert me.joinpath("cmdline").read_bytes().split(b"\0")[0].endswith(b"python3")
    assert me.joinpath("cwd").resolve() == pathlib.Path.cwd()
    for name in ("maps", "stat", "statm", "environ", "limits", "mounts", "mountinfo", "io", "cgroup", "smaps"):
        assert me.joinpath(name).exists(), name
        me.joinpath(name).read_bytes()
    for name in ("cpuinfo", "meminfo", "uptime", "loadavg", "version", "stat", "filesystems", "sys/kernel/hostname"):
        assert pathlib.Path("/proc", name).read_bytes(), name
    fds = os.listdir("/proc/self/fd")
    assert {"0", "1", "2"} <= set(fds)
    assert os.stat("/dev/fd/1") and os.stat("/dev/stdout")


def world():
    assert os.environ["HOME"] == os.path.expanduser("~") and os.access(os.environ["HOME"], os.W_OK)
    import grp
    import pwd
    assert pwd.getpwuid(os.getuid()).pw_dir == os.environ["HOME"] and grp.getgrgid(os.getgid())
    assert locale.setlocale(locale.LC_ALL, "") and sys.getfilesystemencoding() == "utf-8"
    name = "砂場 ñ"
    pathlib.Path(name).write_text(name)
    assert name in os.listdir(".") and unicodedata.normalize("NFC", name) == name
    tokyo = datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
    assert tokyo.utcoffset().seconds == 9 * 3600
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    assert time.strftime("%H", time.localtime(0)) == "01"
    assert 1 <= len(os.sched_getaffinity(0)) == os.cpu_count()
    assert decimal.Decimal(1) / 3 and json.loads(json.dumps({"a": [1, None]}))


def filesystem():
    d = pathlib.Path(tempfile.mkdtemp())
    (d / "a").write_text("x")
    os.link(d / "a", d / "b")
    os.symlink("a", d / "c")
    assert (d / "a").stat().st_nlink == 2 and os.readlink(d / "c") == "a"
    os.chmod(d / "a", 0o600)
    os.utime(d / "a", ns=(10**18, 10**18 + 5))
    assert (d / "a").stat().st_mtime_ns == 10**18 + 5
    os.setxattr(d / "a", "user.note", b"v")
    assert os.getxattr(d / "a", "user.note") == b"v"
    import fcntl
    with open(d / "a") as f, open(d / "a") as g:
        fcntl.flock(f, fcntl.LOCK_EX)
        try:
            fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert False
        except BlockingIOError:
            pass
    fd = os.open(d / "big", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    os.pwrite(fd, b"end", (1 << 32) - 3)
    assert os.fstat(fd).st_size == 1 << 32
    assert os.copy_file_range(fd, os.open(d / "out", os.O_RDWR | os.O_CREAT), 4096) > 0
    os.rename(d / "b", d / "z")
    shutil.copytree(d, str(d) + "2", ignore=shutil.ignore_patterns("big"))
    shutil.rmtree(d)
    deep = pathlib.Path("deep").joinpath(*["d" * 50] * 30)
    deep.mkdir(parents=True)
    assert len([n for n, _, _ in os.walk("deep")]) == 31


if __name__ == "__main__":
    for part in (venv, processes, database, crypto, pipes, threads, signals, sockets, memory, inotify, proc, filesystem, world):
        try:
            part()
        except BaseException:
            print("failed:", part.__name__, flush=True)
            raise
    print("ok")
