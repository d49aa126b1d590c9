"""An agent program: the source of a few stdlib-only modules, sent over the line and run without touching the disk.

The host needs a ``python3`` (3.8 or later) and nothing else: no plink, no file, no folder. A fixed one-line bootstrap
is all that a remote shell ever sees; sources, arguments and settings follow on standard input.
"""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

LIFELINE = "plink.remote.lifeline"

# Reads "LENGTH\n" padded to 12 bytes and then that many bytes of JSON, with os.read so that nothing beyond it is
# taken from standard input; makes the modules (and bare packages above them) in the order given; calls main().
# The login folder is not imported from: a socket.py of the user's there would be taken for the library's.
# No single quote may stand in here: the whole is wrapped in a pair of them for the remote shell.
_BOOTSTRAP = """\
import sys
sys.path[:] = [p for p in sys.path if p]
import os, json, types
def read(n):
    data = b""
    while len(data) < n:
        got = os.read(0, n - len(data))
        if not got:
            sys.exit(1)
        data += got
    return data
bundle = json.loads(read(int(read(12))))
for name, source in bundle["modules"]:
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "<plink agent: " + name + ">", "exec"), module.__dict__)
sys.modules[bundle["modules"][-1][0]].main(**bundle["settings"])
"""

BOOTSTRAP = "exec(" + json.dumps(_BOOTSTRAP) + ")"
REMOTE_COMMAND = f"exec python3 -c '{BOOTSTRAP}'"


@dataclass(frozen=True)
class AgentProgram:
    """Which modules an agent consists of; the last one's ``main(**settings)`` is what runs."""

    modules: tuple[str, ...]

    def bundle(self, settings: dict[str, object]) -> bytes:
        """What is written to the agent's standard input before any message."""
        sources = [(name, _source(name)) for name in (LIFELINE, *self.modules)]
        body = json.dumps({"modules": sources, "settings": settings}).encode()
        return f"{len(body):<11}\n".encode() + body


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).read_text(encoding="utf-8")
