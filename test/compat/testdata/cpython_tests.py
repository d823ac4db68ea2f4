"""Runs modules of CPython's test suite and writes one JSON line for each test.

    cpython_tests.py [-j N] [--timeout SECONDS] [--path DIR] [--only ID] RESULTS MODULE...

A module is a name below the package test, such as test_json; a name that ends
in a dot is a package whose modules are run one by one. Each runs in a process
of its own, as in CPython's own runner, without optional resources (network,
largefile, ...). RESULTS gets MODULE.jsonl, with lines that have id, outcome
(pass, skip, fail, error), detail and seconds, and MODULE.log with what the
tests printed. A test that never ended has no line. The exit code is 0 whatever
the tests find.
"""
import argparse
import concurrent.futures
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DETAIL = 1500  # characters kept of a traceback or of a reason


class Lines(unittest.TestResult):
    """Writes each test's outcome at once, so that a crash loses one test only."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.worst, self.began = None, time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.worst, self.began = None, time.monotonic()
        print("RUN", test.id(), flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        outcome, detail = self.worst or ("error", "no outcome")
        self.line(test.id(), outcome, detail)

    def note(self, outcome, detail=""):
        if self.worst is None or outcome in ("fail", "error"):
            self.worst = (outcome, detail[-DETAIL:])

    def trouble(self, test, outcome, err):
        detail = self._exc_info_to_string(err, test)
        print(detail, flush=True)
        if isinstance(test, unittest.TestCase):
            self.note(outcome, detail)
        else:  # setUpClass or setUpModule: its tests do not run at all
            self.line(test.id(), outcome, detail[-DETAIL:])

    def addSuccess(self, test):
        self.note("pass")

    def addFailure(self, test, err):
        self.trouble(test, "fail", err)

    def addError(self, test, err):
        self.trouble(test, "error", err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.trouble(test, "fail", err)

    def addSkip(self, test, reason):
        if isinstance(test, unittest.TestCase):
            self.note("skip", reason)

    def addExpectedFailure(self, test, err):
        self.note("pass", "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note("fail", "unexpected success")

    def line(self, name, outcome, detail):
        took = round(time.monotonic() - self.began, 3)
        json.dump({"id": name, "outcome": outcome, "detail": detail, "seconds": took}, self.out)
        self.out.write("\n")
        self.out.flush()


def flat(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        else:
            yield t


def run_module(name, results, only):
    """Runs one module in this process."""
    from test import support
    support.use_resources = []
    with open(os.path.join(results, name + ".jsonl"), "w") as out:
        result = Lines(out)

        def run(suite):
            if only:
                suite = unittest.TestSuite(t for t in flat(suite) if t.id() in only)
            suite.run(result)

        try:
            module = importlib.import_module("test." + name)
            main = getattr(module, "test_main", None)
            if main is not None:
                support._run_suite = run
                main()
            else:
                run(unittest.defaultTestLoader.loadTestsFromModule(module))
        except unittest.SkipTest as e:
            result.line("test." + name, "skip", str(e))
        support.reap_children()


def run_child(name, results, args):
    """Runs one module in a new session and kills what is left of it."""
    start, scratch = time.monotonic(), tempfile.mkdtemp(prefix="cpython-")
    command = [sys.executable, "-u", "-W", "default", "-bb", "-E", os.path.abspath(__file__), "--one", results, name]
    for key, values in ("--path", args.path), ("--only", args.only):
        for v in values:
            command[-2:-2] = [key, v]
    env = dict(os.environ, TMPDIR=scratch, HOME=scratch)
    env.pop("PYTHONUNBUFFERED", None)  # a box sets it; it is not what is tested
    with open(os.path.join(results, name + ".log"), "wb") as log:
        child = subprocess.Popen(
            command, cwd=scratch, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            child.wait(args.timeout)
        except subprocess.TimeoutExpired:
            log.write(b"\nTIMEOUT\n")
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    return name, child.returncode, time.monotonic() - start


def expand(name, path):
    if not name.endswith("."):
        return [name]
    for d in path:
        full = os.path.join(d, name[:-1])
        if os.path.isdir(full):
            return sorted(name + f[:-3] for f in os.listdir(full) if f.startswith("test_") and f.endswith(".py"))
    return []


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-j", type=int, default=1)
    p.add_argument("--timeout", type=float, default=600, help="of one module")
    p.add_argument("--path", action="append", default=[], help="another folder of the package test")
    p.add_argument("--only", action="append", default=[], help="run only tests with this id")
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("results")
    p.add_argument("modules", nargs="+")
    args = p.parse_args()
    args.path = [os.path.abspath(d) for d in args.path]
    results = os.path.abspath(args.results)
    import test
    test.__path__.extend(args.path)
    if args.one:
        return run_module(args.modules[0], results, set(args.only))
    os.makedirs(results, exist_ok=True)
    modules = [m for name in args.modules for m in expand(name, list(test.__path__))]
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for name, code, took in pool.map(lambda m: run_child(m, results, args), modules):
            print(f"{name}: exit code {code}, {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
