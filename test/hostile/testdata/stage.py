"""Runs hostile cases one after the other and prints one JSON line for each.

It runs inside a box, and outside of any as the control. Before and after each
case, or bundle of rows of one case, it prints a witness: the secret of this run and what this place looks like,
so that a box that never started, or was replaced, proves nothing.
"""
import ctypes, errno, fcntl, io, itertools, json, mmap, os, resource, select, signal, socket, stat, struct, subprocess, sys, threading, time

G = json.load(open('input.json'))
NUMBERS = G['numbers']  # system calls by name
C = G['canaries']       # what the caller has put outside, to be found or not
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NAMES = {errno.EOPNOTSUPP: 'EOPNOTSUPP', errno.EAGAIN: 'EAGAIN', errno.EDEADLK: 'EDEADLK'}
NONE = -1      # no such process or descriptor
NOWHERE = 1    # an address that cannot be read


def name(e):
    return NAMES.get(e) or errno.errorcode.get(e, 'E%d' % e)


def K(nr, *args):
    """Makes a system call by number and says ok or the error's name."""
    args = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]
    args += [ctypes.c_long(0)] * (6 - len(args))
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *args)
    return 'ok' if r >= 0 else name(ctypes.get_errno())


def S(call, *args):
    """K by the call's name."""
    return K(NUMBERS[call], *args)


def D(call, *args):
    """S with arguments that are wrong in any case, if there are none: what is
    let in does nothing."""
    return S(call, *(args or [NONE] * 6))


def T(f, *args, **kw):
    """Calls f and says ok, the error's name, or the exception's."""
    try:
        f(*args, **kw)
        return 'ok'
    except OSError as e:
        return name(e.errno) if e.errno else type(e).__name__
    except Exception as e:
        return type(e).__name__


def W(path):
    """Opens for writing, and writes nothing: if the wall is open, no harm."""
    return T(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)))


def R(path, n=64):
    """Reads a little and says what kind of answer came: an error's name, empty
    or data."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as e:
        return name(e.errno)
    try:
        return 'data' if os.read(fd, n) else 'empty'
    except OSError as e:
        return 'open ' + name(e.errno)
    finally:
        os.close(fd)


def L(path):
    """Says what is there: absent, null device, other device, empty folder,
    folder, empty file, file that can be read, or an error's name."""
    try:
        st = os.lstat(path)
    except OSError as e:
        return 'absent' if e.errno == errno.ENOENT else name(e.errno)
    if stat.S_ISCHR(st.st_mode):
        return 'null' if st.st_rdev == os.makedev(1, 3) else 'device'
    if stat.S_ISDIR(st.st_mode):
        try:
            return 'folder' if os.listdir(path) else 'empty folder'
        except OSError as e:
            return name(e.errno)
    if stat.S_ISLNK(st.st_mode):
        return 'link'
    return R(path)


def others():
    """The processes that are visible, without PID 1 and this one. Outside it is
    the one that stands there for that: the others are nobody's business."""
    if G['where'] == 'control':
        return [C['pid']]
    return [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid())]


def alone_here():
    """Whether loopback is the only interface. Nothing that would contact an
    address is tried otherwise."""
    return [n for _, n in socket.if_nameindex()] == ['lo']


def witness():
    return {'secret': G['secret'], 'host': os.uname().nodename, 'root': os.stat('/').st_ino, 'pid': os.getpid(),
            'files': len(os.listdir('/proc/self/fd')), 'here': os.path.exists('input.json')}


def child(cases, w):
    case = cases[0]
    os.setsid()
    if G['where'] == 'bare' and libc.unshare(0x20000):  # its own mounts
        raise OSError(ctypes.get_errno(), 'unshare')
    null = os.open('/dev/null', os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(w, 1)
    os.dup2(w, 2)
    os.close(null)
    os.close(w)
    os.mkdir('d%d' % case['number'])
    os.chdir('d%d' % case['number'])
    if case.get('sh'):
        os.execv('/bin/sh', ['sh', '-c', case['sh']])
    sys.stdout = open(1, 'w', closefd=False)
    sys.stderr = open(2, 'w', closefd=False)
    for case in cases:
        said, direct = io.StringIO(), sys.stdout
        if len(cases) > 1:
            sys.stdout = said
        try:
            exec(compile(case['py'], case['id'], 'exec'), dict(globals()))
        except SystemExit:
            pass
        except BaseException as e:
            print('%s: %s' % (type(e).__name__, e))
        sys.stdout = direct
        if len(cases) > 1:
            print(json.dumps([case['id'], said.getvalue().strip()]))
        sys.stdout.flush()
    os._exit(0)


def run(cases):
    """Runs cases in one child and returns what it wrote."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        child(cases, w)
    os.close(w)
    out, status, end = b'', None, time.monotonic() + 400
    while True:
        if select.select([r], [], [], 0.02)[0]:
            part = os.read(r, 65536)
            if len(out) < 1 << 20:
                out += part
            if part:
                continue
        if status is None:
            p, s = os.waitpid(pid, os.WNOHANG)
            if p:
                status = s
                continue  # what it wrote last
        if status is not None:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            out += b'\n[timed out]'
            status = 0
    try:
        os.killpg(pid, signal.SIGKILL)  # and whatever it has left behind
    except OSError:
        pass
    os.close(r)
    text = out.decode('utf-8', 'backslashreplace').strip()
    if os.WIFSIGNALED(status):
        text += ' [%s]' % signal.Signals(os.WTERMSIG(status)).name
    elif os.WEXITSTATUS(status):
        text += ' [exit %d]' % os.WEXITSTATUS(status)
    return text.strip()


for _, bundle in itertools.groupby(G['cases'], lambda c: c['bundle']):
    bundle = list(bundle)
    print(json.dumps({'id': bundle[0]['id'], 'witness': witness()}), flush=True)
    text = run(bundle)
    if len(bundle) == 1:
        print(json.dumps({'id': bundle[0]['id'], 'out': text, 'witness': witness()}), flush=True)
        continue
    outs = {}
    for line in text.splitlines():
        try:
            k, v = json.loads(line)
            outs[k] = v
        except ValueError:
            outs[None] = line  # how the child ended
    for case in bundle:
        print(json.dumps({'id': case['id'], 'out': outs.get(case['id'], 'not run: %s' % outs.get(None)), 'witness': witness()}), flush=True)
