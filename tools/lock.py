"""Write requirements.lock: the versions of constraints.txt with the hashes of all their files on the package index.

PyTorch and what it brings for CUDA are left out: which build is right depends on the machine and its index. uv, which
asks the index, is installed into an environment that is thrown away.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
WITHOUT_HASHES = frozenset({"torch"})
_HEADER = "# Written by `make lock`: constraints.txt with hashes, but for PyTorch. `make setup` installs it.\n"


def name_of(requirement: str) -> str:
    """Return the normalised name of what a requirement asks for (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]).lower()


def pinned() -> dict[str, str]:
    """Return the lines of constraints.txt, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {name_of(line): line for line in lines if line and not line.startswith("#")}


def markers() -> dict[str, str]:
    """Return where pyproject.toml asks for a package on some platforms only: the condition, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return {name_of(line): line.partition(";")[2].strip() for line in requirements if ";" in line}


def main() -> None:
    """Write the file; it changes nothing else."""
    conditions = markers()
    requirements = [
        f"{line} ; {conditions[name]}" if name in conditions else line
        for name, line in pinned().items()
        if name not in WITHOUT_HASHES
    ]
    with tempfile.TemporaryDirectory(prefix="plink-lock-") as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", "uv"], check=True)
        requirements_file = Path(folder, "requirements.in")
        requirements_file.write_text("\n".join(requirements) + "\n")
        process = subprocess.run(
            [f"{folder}/bin/uv", "pip", "compile", "--quiet", "--no-config", "--no-deps", "--universal",
             "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", str(requirements_file)],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    if process.returncode:
        sys.exit(process.returncode)
    LOCK.write_text(_HEADER + process.stdout)


if __name__ == "__main__":
    main()
