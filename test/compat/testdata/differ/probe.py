"""For the programs: say what a call gives, or which error."""
import errno


def err(name, call, ok="ok"):
    """Prints name=errno's name, or what the call returned, or ok."""
    try:
        v = call()
    except OSError as e:
        v = errno.errorcode.get(e.errno, "error %s" % e.errno) if e.errno is not None else type(e).__name__
    except Exception as e:
        v = type(e).__name__
    print("%s=%s" % (name, v if isinstance(v, str) else ok), flush=True)
