"""Small hand-made inputs, and the one shape that every refusal has."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import typed

ERROR = "plink: error: "


def network(**changes: Any) -> dict[str, Any]:
    """Four hosts in two racks, handed out mixed: ``a`` and ``c`` are near, ``b`` and ``d`` are near."""
    near, far = 10, 100
    rows = [[0 if i == j else near if (i - j) % 2 == 0 else far for j in range(4)] for i in range(4)]
    hosts: list[dict[str, Any]] = [{"name": name, "address": f"10.0.0.{i}"} for i, name in enumerate("abcd", start=1)]
    hosts[2]["slots"] = 2
    return {"schema": "plink.network/1", "hosts": hosts, "latency_us": rows, "bandwidth_gbps": None} | changes


def write(path: Path, document: object) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(document))
    return path


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with what it holds, folders too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def refusal(done: "subprocess.CompletedProcess[str]", code: int = 2) -> str:
    """What a refused command said, after checking that it said it in one line and ended with the right code."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(ERROR)
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    assert "defect in plink" not in done.stderr
    return done.stderr.removeprefix(ERROR).removesuffix("\n")


def refuses(folder: Path, words: Sequence[str], message: str, code: int = 2) -> None:
    """A command typed in a folder is refused in one line with this in it, and changes nothing there."""
    before = listing(folder)
    assert message in refusal(typed(*words, cwd=folder), code)
    assert listing(folder) == before
