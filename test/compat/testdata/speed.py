"""Times work with many files in the current folder; prints NAME SECONDS lines."""
import os
import shutil
import subprocess
import sys
import time


def run(*command, **kw):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kw)


def timed(name, fn, *args):
    start = time.monotonic()
    fn(*args)
    print(f"{name}\t{time.monotonic() - start:.2f}", flush=True)


def write():
    for d in range(100):
        os.makedirs(f"repo/d{d}")
        for f in range(50):
            with open(f"repo/d{d}/f{f}", "w") as out:
                out.write(f"{d} {f}\n" * 100)


def change():
    for d in range(100):
        for f in range(0, 50, 2):
            with open(f"repo/d{d}/f{f}", "a") as out:
                out.write("more\n")


def read():
    for root, _, files in os.walk("repo/", followlinks=False):
        for f in files:
            with open(os.path.join(root, f), "rb") as src:
                src.read()


git = ["git", "-c", "user.name=N", "-c", "user.email=e@example.com", "-C", "repo"]
timed("write 5,000 files", write)
run("git", "init", "-q", "repo")
timed("git add, commit", lambda: (run(*git, "add", "."), run(*git, "commit", "-qm", "one")))
run(*git, "checkout", "-qb", "other")
change()
run(*git, "commit", "-qam", "two")
timed("git checkout (2,500 files change)", run, *git, "checkout", "-q", "-")
timed("git status", run, *git, "status", "--porcelain")
timed("git clone", run, "git", "clone", "-q", "--no-local", "repo", "copy")
timed("read 5,000 files", read)
timed("python -m venv", run, sys.executable, "-m", "venv", "--without-pip", "venv")
timed("remove all", lambda: [shutil.rmtree(d) for d in ("repo", "copy", "venv")])
