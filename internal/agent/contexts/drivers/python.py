# The driver of Python contexts. It is read from a descriptor, so that no
# program can replace it. It takes cells as JSON lines on descriptor 3 and tells
# what became of them as JSON lines on descriptor 4; what cells print goes to 1
# and 2 as it would anywhere else.
def _sunaba_drive():
    import _thread, ast, base64, builtins, io, json, linecache, os, signal, sys, traceback, types

    if sys.version_info < (3, 8):
        sys.exit("code contexts need Python 3.8 or later; this is " + sys.version.split()[0])

    def away(fd):  # out of reach of children, and of programs that take 3 and 4
        import fcntl
        try:
            new = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
        except OSError:  # there are not so many
            new = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(fd)
        return new

    commands = os.fdopen(away(3), "rb")
    told = away(4)
    me = os.getpid()
    HERE = _sunaba_drive.__code__.co_filename
    MOST = 2 << 20  # of a result's forms together, in bytes as they are told
    now = {"n": 0, "busy": False, "shown": set(), "failed": False, "cancelling": False, "telling": False, "asked": False}
    main, one_line = _thread.get_ident(), _thread.allocate_lock()

    def tell(**message):
        line = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if os.getpid() != me:
            return
        # A line is told as a whole, though a pipe may not hold it: other threads wait,
        # and so does an interrupt, which the main thread gets.
        mine = _thread.get_ident() == main
        if mine:
            now["telling"] = True
        try:
            with one_line:
                while line:
                    line = line[os.write(told, line):]
        finally:
            if mine:
                now["telling"] = False
        if mine and now["asked"]:
            now["asked"] = False
            raise KeyboardInterrupt

    def flush():
        for f in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                f.flush()
            except BaseException:
                pass

    # Values, in every form that they offer.

    def text_of(form, data):
        if isinstance(data, (bytes, bytearray)):
            return base64.b64encode(data).decode()
        if isinstance(data, str) and form != "application/json":
            return data
        if form == "application/json" or form.endswith("+json"):
            return json.dumps(data, default=str)
        return str(data)

    def send(forms, main):
        flush()
        out, size, dropped = {}, 0, 0
        for form, data in forms.items():
            if data is None:
                continue
            try:
                data = text_of(form, data)
            except Exception:
                continue
            n = len(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
            if size + n > MOST or len(out) == 16:
                dropped += n
                continue
            size += n
            out[str(form)] = data
        if out or dropped:
            tell(op="result", n=now["n"], main=main, forms=out, dropped=dropped)

    def table(frame):
        part = frame.head(1000)
        rows = json.loads(part.to_json(orient="values", date_format="iso", default_handler=str))
        return {"columns": [str(c) for c in frame.columns], "data": rows, "rows": len(frame)}

    def png(figure):
        b = io.BytesIO()
        figure.savefig(b, format="png", bbox_inches="tight")
        now["shown"].add(id(figure))
        return b.getvalue()

    def known(value):  # what libraries do not offer by themselves
        for c in type(value).__mro__:
            name = c.__module__ + "." + c.__qualname__
            if name == "pandas.core.frame.DataFrame":
                return "application/json", table
            if name == "matplotlib.figure.Figure":
                return "image/png", png
        return None, None

    METHODS = (
        ("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"),
        ("image/jpeg", "_repr_jpeg_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
        ("application/json", "_repr_json_"),
    )

    def call(value, method):
        if isinstance(value, type):
            return None
        f = getattr(value, method, None)
        if f is None:
            return None
        try:
            got = f()
        except NotImplementedError:
            return None
        except Exception:
            traceback.print_exc(limit=0)
            return None
        if isinstance(got, tuple) and got and method != "_repr_json_":
            got = got[0]  # the rest is about how to show it
        return got

    def forms_of(value):
        forms = {}
        bundle = call(value, "_repr_mimebundle_")
        if isinstance(bundle, dict):
            forms.update(bundle)
        for form, method in METHODS:
            if form not in forms:
                got = call(value, method)
                if got is not None:
                    forms[form] = got
        form, make = known(value)
        if form and form not in forms:
            try:
                forms[form] = make(value)
            except Exception:
                traceback.print_exc(limit=0)
        if "text/plain" not in forms:
            forms["text/plain"] = repr(value)
        return forms

    # Figures, without show().

    def figures():
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None or not hasattr(plt, "get_fignums"):
            return
        try:
            for num in plt.get_fignums():
                figure = plt.figure(num)
                if id(figure) not in now["shown"]:
                    send({"image/png": png(figure), "text/plain": repr(figure)}, False)
        finally:
            plt.close("all")

    class Pyplot:  # makes show() mean that, from the first import on
        busy = False

        def find_spec(self, name, path=None, target=None):
            if name != "matplotlib.pyplot" or self.busy:
                return None
            import importlib.util
            self.busy = True
            try:
                spec = importlib.util.find_spec(name)
            finally:
                self.busy = False
            if spec is not None and spec.loader is not None:
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    module.show = lambda *a, **k: figures()
                spec.loader.exec_module = exec_module
            return spec

    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.meta_path.insert(0, Pyplot())

    def no_input(prompt=""):
        raise RuntimeError("input() has nobody to ask here: put the value into the code")
    builtins.input = no_input

    # Interrupts reach a cell, and nothing else.

    def on_int(*_):
        if not now["busy"] or os.getpid() != me:
            return
        if now["telling"]:
            now["asked"] = True
            return
        raise KeyboardInterrupt
    loop = []

    def run_async(coroutine):
        import asyncio
        if not loop or loop[0].is_closed():
            loop[:] = [asyncio.new_event_loop()]
        asyncio.set_event_loop(loop[0])
        task = loop[0].create_task(coroutine)
        try:
            return loop[0].run_until_complete(task)
        except BaseException as e:
            if task.done():
                raise
            why = e
        # It goes no further, and where it was is what the traceback has to show.
        now["cancelling"] = True
        task.cancel()
        where = None
        try:
            loop[0].run_until_complete(task)
        except BaseException as e:
            where = e.__traceback__
        raise why.with_traceback(where) from None

    def clean(e, depth=0):  # takes the driver's frames out of tracebacks
        if e is None or depth > 10:
            return
        frames, t = [], e.__traceback__
        while t is not None:
            name = t.tb_frame.f_code.co_filename
            if name != HERE and not name.endswith("asyncio/base_events.py"):
                frames.append(t)
            t = t.tb_next
        kept = None
        for f in reversed(frames):
            kept = types.TracebackType(kept, f.tb_frame, f.tb_lasti, f.tb_lineno)
        e.__traceback__ = kept
        clean(e.__cause__, depth + 1)
        clean(e.__context__, depth + 1)

    def failed(e, trace):  # a cell has one error
        flush()
        if now["failed"]:
            return
        now["failed"] = True
        if now["cancelling"] and type(e).__name__ == "CancelledError":
            e, trace = KeyboardInterrupt(), trace.replace("CancelledError", "KeyboardInterrupt")
        try:
            value = str(e)
        except BaseException:
            value = "<no text>"
        tell(op="error", n=now["n"], name=type(e).__name__[:200], value=value[:1 << 16], traceback=trace[:1 << 18])

    # Random numbers that are no other copy's.

    def renew(seed):
        numpy, ssl, random = (sys.modules.get(m) for m in ("numpy.random", "ssl", "random"))
        for module, give in (
                (random, lambda: random.seed(seed)),
                (numpy, lambda: numpy.seed([int.from_bytes(seed[i:i + 4], "big") for i in range(0, len(seed), 4)])),
                (ssl, lambda: ssl.RAND_add(seed, float(len(seed))))):
            try:
                if module is not None:
                    give()
            except BaseException:  # the code has put something else there
                pass

    # The plain interpreter.

    space = sys.modules["__main__"].__dict__
    for name in [k for k in space if not k.startswith("__")]:
        del space[name]

    def plain(code):
        name = "<cell %d>" % now["n"]
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            tree = ast.parse(code, name, "exec")
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
                last = ast.Expression(tree.body.pop().value)
            value = None
            for part, mode in ((tree, "exec"), (last, "eval")):
                if part is None:
                    continue
                made = compile(part, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                value = eval(made, space)
                if made.co_flags & 0x80:  # CO_COROUTINE
                    value = run_async(value)
            if last is not None and value is not None:
                space["_"] = value
                send(forms_of(value), True)
            return "ok"
        except BaseException as e:
            clean(e)
            t = e.__traceback__
            while t is not None and t.tb_frame.f_code.co_filename == ast.__file__:
                t = t.tb_next  # where a syntax error was found
            if isinstance(e, SyntaxError) and t is None:
                trace = "".join(traceback.format_exception_only(type(e), e))
            else:
                trace = "".join(traceback.format_exception(type(e), e, t))
            failed(e, trace)
            return "interrupted" if isinstance(e, KeyboardInterrupt) else "error"

    kernel, run = "python " + sys.version.split()[0], plain

    def display(*values, **options):
        for v in values:
            send(v if options.get("raw") and isinstance(v, dict) else forms_of(v), False)
    builtins.display = display

    # IPython, where there is one.

    def ipython():
        import IPython
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from traitlets import Type
        from traitlets.config import Config

        class Hook(DisplayHook):
            def start_displayhook(self):
                pass

            def write_output_prompt(self):
                pass

            def write_format_data(self, forms, md_dict=None):
                send(forms, True)

            def finish_displayhook(self):
                pass

        class Publisher(DisplayPublisher):
            def publish(self, data, *_, **__):
                send(data, False)

            def clear_output(self, wait=False):
                pass

        class Shell(InteractiveShell):
            displayhook_class = Type(Hook)
            display_pub_class = Type(Publisher)
            system = InteractiveShell.system_raw  # without a terminal between

            def _get_exc_info(self, exc_tuple=None):
                etype, value, tb = super()._get_exc_info(exc_tuple)
                clean(value)
                return etype, value, value.__traceback__

            def _showtraceback(self, etype, evalue, stb):
                failed(evalue if isinstance(evalue, BaseException) else etype(evalue), "\n".join(stb))

            def ask_exit(self):
                raise SystemExit

            def enable_gui(self, gui=None):
                pass

            def init_virtualenv(self):
                pass

        import warnings
        warnings.filterwarnings("ignore", "To exit:", module="IPython")
        c = Config()
        c.HistoryManager.enabled = False
        c.InteractiveShell.colors = "NoColor"
        c.InteractiveShell.autoindent = False
        c.InteractiveShell.banner1 = ""
        shell = Shell.instance(config=c, user_module=sys.modules["__main__"])
        shell.loop_runner = run_async
        shell.set_custom_exc((SystemExit,), lambda s, et, ev, tb, tb_offset=None: failed(ev, et.__name__ + ": " + str(ev)))
        for form, make, module, name in (
                ("application/json", table, "pandas.core.frame", "DataFrame"),
                ("image/png", png, "matplotlib.figure", "Figure")):
            shell.display_formatter.formatters[form].for_type_by_name(module, name, make)
        builtins.input = no_input
        builtins.display = IPython.display.display

        def run(code):
            done = shell.run_cell(code, store_history=True)
            e = done.error_before_exec or done.error_in_exec
            if isinstance(e, KeyboardInterrupt):
                return "interrupted"
            return "ok" if e is None else "error"
        return "ipython " + IPython.__version__, run

    try:
        kernel, run = ipython()
    except ImportError:
        pass
    except Exception as e:  # one that is there and broken
        sys.stderr.write("cannot use IPython: %r\n" % e)
    for f in (sys.stdout, sys.stderr):
        f.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    signal.signal(signal.SIGINT, on_int)
    tell(op="ready", kernel=kernel)

    while True:
        try:
            line = commands.readline()
            if not line:
                os._exit(0)
            command = json.loads(line)
            if command["op"] == "ping":
                tell(op="pong", n=command["n"])
                continue
            if command["op"] == "renew":
                renew(bytes.fromhex(command["seed"]))
                continue
            now["n"], status = command["n"], "error"
            now["shown"].clear()
            now["failed"] = now["cancelling"] = now["asked"] = False
            signal.signal(signal.SIGINT, on_int)
            try:
                now["busy"] = True
                tell(op="begin", n=now["n"])  # from here on an interrupt finds the cell
                status = run(command["code"])
                figures()
                if now["failed"] and status == "ok":
                    status = "error"
            except BaseException as e:
                status = "interrupted" if isinstance(e, KeyboardInterrupt) else "error"
                now["busy"] = False
                failed(e, "".join(traceback.format_exception_only(type(e), e)))
            finally:
                now["busy"] = False
                flush()
                if os.getpid() != me:
                    os._exit(0)
            tell(op="end", n=now["n"], status=status)
        except KeyboardInterrupt:
            pass


_sunaba_drive()
