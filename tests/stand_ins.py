"""Shell scripts in the place of programs."""

from pathlib import Path


def program(folder: Path, name: str, script: str) -> Path:
    """A shell script of this name in a folder, which is made if need be."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
