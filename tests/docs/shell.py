"""A shell in a folder of its own, with this checkout's ``plink``, for commands of the documentation."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.lab.waiting import until

_TIMEOUT_S = 300
_FIRST_OUTPUT_TIMEOUT_S = 120


class Shell:
    """Shell that runs lines in a folder, with this checkout's ``plink``."""

    def __init__(self, folder: Path, lab: str) -> None:
        self.folder = folder
        self._background: list[subprocess.Popen[str]] = []
        tools = folder / ".tools"
        tools.mkdir()
        named = f'if [ "$1" = lab ]; then set -- "$1" "$2" --name {lab} "${{@:3}}"; fi\n' if lab else ""
        (tools / "plink").write_text(f'#!/bin/bash\n{named}exec {sys.executable} -m plink "$@"\n')
        (tools / "python").write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
        (tools / "torchrun").write_text(f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        for tool in ("plink", "python", "torchrun"):
            (tools / tool).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._background:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for process in self._background:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run one line to its end."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip

    def begin(self, line: str, lines: int) -> None:
        """Start one line in the background; return when it has printed so many lines, one at least."""
        output = self.folder / f".output-{len(self._background)}"
        with output.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        self._background.append(process)

        def printed() -> bool:
            printed_lines = output.read_text().splitlines()
            assert process.poll() is None, f"{line}: {printed_lines}"
            return len(printed_lines) >= max(lines, 1)

        until(printed, _FIRST_OUTPUT_TIMEOUT_S, f"{max(lines, 1)} lines of {line}")
