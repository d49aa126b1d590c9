"""The file in which a program's ``result()`` keeps what was learnt: on a reliable host, whole or not at all."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from plink.errors import PlinkError
from plink.model.storage import check_writable, write_bytes


def unwritable(path: str) -> str | None:
    """Return why the result file cannot be written, for a person; None: it can be."""
    try:
        check_writable(Path(path).absolute())
    except PlinkError as error:
        return str(error)
    return None


def save_arrays(path: str, **arrays: Any) -> Path:
    """Save arrays as NumPy's npz under exactly that name, and return the path.

    :raises PlinkError: when it cannot be written; an older file of that name is then still as it was.
    """
    target, file = Path(path).absolute(), io.BytesIO()
    np.savez(file, **arrays)
    write_bytes(target, file.getvalue())
    return target
