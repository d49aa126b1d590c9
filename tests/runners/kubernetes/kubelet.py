"""What a cluster does with the objects, on this machine: a folder for the ConfigMap, a process for each pod.

Which pod is on which node is what a test says; the pods meet on loopback instead of by a Service's name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ports import free_port
from tests.runners.kubernetes.written import templates

STRAY_S = 3.0  # how long a pod that may not run tries to tell the others; 10 s outside of tests
TIMEOUT_S = 300.0  # torch takes a minute to import where many share two cores
MARK = "plink-rank "


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` and ``$$`` as the reference of Container describes them for command, args and env: a known name is
    replaced, an unknown one stays as it is; ``$$`` is one ``$``, and what follows it is no name."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out, at = out + text[at], at + 1
        elif text[at + 1] == "$":
            out, at = out + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out, at = out + variables.get(name, text[at : end + 1]), end + 1
        else:
            out, at = out + text[at : at + 2], at + 2
    return out


class Ended:
    """A pod that is over: its exit code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.err = code, err
        lines = out.splitlines()
        self.proof = [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]
        self.lines = [line for line in lines if not line.startswith(MARK)]


class Kubelet:
    """Runs pods of one job. A context manager that leaves none of them behind.

    :param changes: of the settings that the pods read, besides where they meet.
    """

    def __init__(
        self, documents: dict[str, dict[str, Any]], folder: Path, /, wait_s: float = 60.0, **changes: Any
    ) -> None:
        self._templates, self.folder = templates(documents), folder
        for name, text in documents["ConfigMap"]["data"].items():
            (folder / name).write_text(text.replace("\n_STRAY_S = 10.0 ", f"\n_STRAY_S = {STRAY_S} "))
        settings = json.loads((folder / "settings.json").read_text())
        settings["settings"]["bootstrap"] |= {"host": "127.0.0.1", "port": free_port(), "wait_s": wait_s}
        settings["settings"] |= changes
        (folder / "settings.json").write_text(json.dumps(settings))
        self._pods: list[subprocess.Popen[str]] = []

    def words(self, which: str, environment: Mapping[str, str]) -> list[str]:
        """What the container runs."""
        container = self._templates[which]["spec"]["containers"][0]
        command = [expanded(word, environment) for word in [*container["command"], *container["args"]]]
        assert command[0] == "python3"
        return [sys.executable, command[1].replace("/etc/plink", str(self.folder)), *command[2:]]

    def environment(self, which: str, pod: str, node: str) -> dict[str, str]:
        """What the container is given: what the node tells it, and what the template says."""
        paths = {"spec.nodeName": node, "metadata.name": pod}
        result = {}
        for entry in self._templates[which]["spec"]["containers"][0]["env"]:
            messages = entry.get("valueFrom")
            result[entry["name"]] = (
                paths[messages["fieldRef"]["fieldPath"]] if messages else expanded(entry["value"], result)
            )
        return result

    def start(self, which: str, pod: str, node: str, *wrapper: str, **more: str) -> "subprocess.Popen[str]":
        """Start a pod; ``wrapper``: what its command is started by, ``more``: what its controller adds."""
        own = self.environment(which, pod, node)
        named = ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG")  # the last so that coverage sees what runs there
        remaining = {name: value for name, value in os.environ.items() if name in named}
        process = subprocess.Popen(
            [*wrapper, *self.words(which, own)],
            env={**remaining, "OMP_NUM_THREADS": "1", **own, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._pods.append(process)
        return process

    def job(self, *nodes: str) -> list[Ended]:
        """An Indexed Job whose pods are on these nodes, in the order of their indices."""
        started = [
            self.start("Job", f"pod-{index}", node, JOB_COMPLETION_INDEX=str(index)) for index, node in enumerate(nodes)
        ]
        return [ended(process) for process in started]

    def __enter__(self) -> "Kubelet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._pods:
            if process.poll() is None:
                process.kill()
                process.communicate()


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Wait for a pod."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, out, err)
