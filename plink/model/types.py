"""Bounded types that several documents use."""

from typing import Annotated, Any

from msgspec import Meta

_MAX_INT = (1 << 63) - 1  # of NumPy's integers
Count = Annotated[int, Meta(ge=0, le=_MAX_INT)]
PositiveInt = Annotated[int, Meta(ge=1, le=_MAX_INT)]
NonNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
ByteCount = Annotated[int, Meta(ge=0, le=1 << 50)]
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Interval = Annotated[list[NonNegative], Meta(min_length=2, max_length=2)]
# Far more than anything measured, and far less than where sums and products overflow.
MAX_QUANTITY = 1e15
Quantity = Annotated[float, Meta(ge=0, lt=MAX_QUANTITY)]
# Gbit/s of what carried anything: 1 kbit/s, as far as files are rounded. 0 is no rate to divide by; null says so.
Rate = Annotated[float, Meta(ge=1e-6, lt=1e15)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(min_length=1)]
# `(?!\n)`: Python's `$` matches before a line's end, too.
HostName = Annotated[
    str,
    Meta(
        title="a host name (letters, digits, '.', '-', '_', ':' only)",
        pattern=r"^[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}(?!\n)$",
    ),
]
LabName = Annotated[
    str,
    Meta(
        title="a lab's name (1 to 16 lower-case letters, digits and dashes)",
        pattern=r"^[a-z0-9][a-z0-9-]{0,15}(?!\n)$",
    ),
]
Fingerprint = Annotated[str, Meta(title="a network's fingerprint (sha256:...)", pattern=r"^sha256:[0-9a-f]+(?!\n)$")]


def _matrix(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "array", "items": {"minimum": 0, "exclusiveMaximum": MAX_QUANTITY} | cell},
    }


# Checked with the number of hosts at hand, and for speed, by plink.model.network.matrix_from_json.
Matrix = Annotated[Any, Meta(extra_json_schema=_matrix({"type": ["number", "null"]}))]
CountMatrix = Annotated[Any, Meta(extra_json_schema=_matrix({"type": ["integer", "null"]}))]
ShareMatrix = Annotated[Any, Meta(extra_json_schema=_matrix({"type": ["number", "null"], "maximum": 1}))]


def own_number(value: Any) -> Any:
    """Return a number of numpy as Python's own, and anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
