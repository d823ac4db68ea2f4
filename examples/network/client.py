"""A box with a network, over REST, with nothing but Python's own library.

The box may reach one host. A program in it asks for another one; what was denied,
and what would allow it, comes back as data. Then the rules are widened while the
box runs. Needs a daemon (`sunaba serve`) and its key in SUNABA_API_KEY.
"""
import json
import os
import urllib.request

SERVER = os.environ.get("SUNABA_SERVER", "http://127.0.0.1:7462")


def call(method, path, body=None):
    request = urllib.request.Request(
        SERVER + "/v1" + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-Key": os.environ["SUNABA_API_KEY"], "Content-Type": "application/json", "Accept": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def resolves(box, host):
    """Whether a program in the box finds the host: what it may not reach does not exist."""
    end = call("POST", f"/boxes/{box}/exec", {"command": ["getent", "ahostsv4", host]})
    return end["exit_code"] == 0


box = call("POST", "/boxes", {"sandbox": {"network": {"allowlist": ["pypi.org"]}}, "ttl_sec": 300})["id"]
try:
    print("pypi.org:", resolves(box, "pypi.org"))
    print("files.pythonhosted.org:", resolves(box, "files.pythonhosted.org"))

    told = call("GET", f"/boxes/{box}/network")
    for denial in told["traffic"]["denied"]:
        print("denied", denial["name"], "because", denial["reason"] + "; to allow it:", denial["fix"])

    # Somebody looks at what is asked for, and adds it to what PUT takes.
    wanted = told["network"]
    wanted["allowlist"] += [d["fix"] for d in told["traffic"]["denied"] if d["name"] == "files.pythonhosted.org"]
    print("now allowed:", *call("PUT", f"/boxes/{box}/network", {"network": wanted})["network"]["allowlist"])
    print("files.pythonhosted.org:", resolves(box, "files.pythonhosted.org"))
finally:
    call("DELETE", f"/boxes/{box}")
