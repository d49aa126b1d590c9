"""Tables of vectors: all that a program learns is in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.errors import InputError

DTYPES = ("float32", "float64", "int32", "int64")
_MAX_ROWS = (1 << 31) - 1  # row numbers travel in 32 bits

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Table:
    """``rows`` vectors of ``width`` numbers each; they are 0 until something is added."""

    name: str
    rows: int
    width: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        location = f"table {self.name!r}"
        if not (isinstance(self.name, str) and self.name and self.name.isprintable()):
            raise InputError(location, "its name must be printable text")
        for value in (self.rows, self.width):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise InputError(location, f"{value!r} rows or numbers a row, which must be whole numbers")
        if not 0 < self.rows <= _MAX_ROWS:
            raise InputError(location, f"{self.rows} rows, of which there must be 1 to {_MAX_ROWS}")
        if self.width < 1:
            raise InputError(location, f"vectors of {self.width} numbers")
        if self.dtype not in DTYPES:
            raise InputError(location, f"dtype {self.dtype!r}, which must be one of {', '.join(DTYPES)}")

    @property
    def row_bytes(self) -> int:
        """Return the size of one vector."""
        return self.width * np.dtype(self.dtype).itemsize
