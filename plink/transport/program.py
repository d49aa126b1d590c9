"""Agent program: the source of a few stdlib-only modules, sent over the connection and run without using the disk.

The host needs a ``python3`` (3.8 or later) and nothing else: no plink, no file, no folder. The remote shell
sees one fixed line, the bootstrap; sources, arguments and settings follow on standard input.
"""

import base64
import importlib.util
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from plink.errors import ProtocolError, UsageError

CHANNEL_MODULES = ("plink.transport.stdio_channel",)

# Makes the modules (and bare packages above them) in the order given; calls main().
_RUN = """\
for name, source in bundle["modules"]:
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "plink-agent/" + name.replace(".", "/") + ".py", "exec"), module.__dict__)
sys.modules[bundle["modules"][-1][0]].main(**bundle["settings"])
"""

# Reads "LENGTH\n" padded to 12 bytes and then that many bytes of JSON, with os.read so that nothing beyond it is
# taken from standard input. The login folder is not on the path: a socket.py of the user's there would replace the
# library's.
# No single quote may be in here: the whole is wrapped in a pair of them for the remote shell.
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
"""

BOOTSTRAP = "exec(" + json.dumps(_BOOTSTRAP + _RUN) + ")"
REMOTE_COMMAND = f"exec python3 -c '{BOOTSTRAP}'"

# For launchers that pass arguments and no standard input. It holds no blank and nothing that a launcher would split at.
_FROM_ARGUMENT = 'exec(__import__("zlib").decompress(__import__("base64").b64decode(__import__("sys").argv[1])))'
# For hosts that can be given files: the sources and the settings lie beside this script.
START, SETTINGS = "start.py", "settings.json"
_FROM_FOLDER = """\
import json, os, sys, types
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != here]
def text(name):
    with open(os.path.join(here, name), encoding="utf-8") as file:
        return file.read()
bundle = json.loads(text("settings.json"))
bundle["modules"] = [(name, text(name + ".py")) for name in bundle["modules"]]
"""
_MAX_ARGUMENT_BYTES = 1 << 17  # MAX_ARG_STRLEN of Linux: one argument, with the zero at its end


@dataclass(frozen=True)
class AgentProgram:
    """Source modules of a program that runs on hosts; the last one's ``main(**settings)`` is what runs.

    :param messages: union of the Structs that it sends, tagged by ``type``; the controller gives a host up that sends
        anything else. None: it sends objects of any type.
    """

    modules: tuple[str, ...]
    messages: Any = None

    def checked(self, message: dict[str, Any]) -> Any:
        """Return a message of the program, as a Struct where there is one for it.

        :raises ProtocolError: the message is invalid.
        """
        try:
            msgspec.convert(message["type"], str)
            return message if self.messages is None else msgspec.convert(message, self.messages)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # JSON may hold half of a surrogate pair
            raise ProtocolError(f"invalid message: {error}") from None

    def bundle(self, settings: dict[str, object]) -> bytes:
        """Return what is written to the agent's standard input before any message."""
        body = self._json((*CHANNEL_MODULES, *self.modules), settings).encode()
        return f"{len(body):<11}\n".encode() + body

    def command_arguments(self, settings: dict[str, object]) -> tuple[str, ...]:
        """Return the arguments of ``python3`` that run this program without a channel to a controller.

        :raises UsageError: when it is longer than an argument can be.
        """
        script = f"import json, sys, types\nbundle = json.loads({self._json(self.modules, settings)!r})\n{_RUN}"
        argument = base64.b64encode(zlib.compress(script.encode(), 9)).decode()
        if len(argument) >= _MAX_ARGUMENT_BYTES:
            raise UsageError(
                f"the program's arguments take {len(argument)} bytes, compressed, with what plink adds; a "
                f"launcher takes at most {_MAX_ARGUMENT_BYTES - 1} (`--runner ssh` has no such limit)"
            )
        return ("-c", _FROM_ARGUMENT, argument)

    def files(self, settings: dict[str, object]) -> dict[str, str]:
        """Return the program as files of one folder, text by name; ``python3 START`` runs it there."""
        document = json.dumps({"modules": list(self.modules), "settings": settings}, indent=1) + "\n"
        return {
            START: _FROM_FOLDER + _RUN,
            SETTINGS: document,
            **{f"{name}.py": _source(name) for name in self.modules},
        }

    @staticmethod
    def _json(modules: tuple[str, ...], settings: dict[str, object]) -> str:
        return json.dumps({"modules": [(name, _source(name)) for name in modules], "settings": settings})


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).read_text(encoding="utf-8")
