"""Requests for diagnoses."""

from dataclasses import dataclass
from typing import Annotated

from plink.errors import UsageError
from plink.model.request import FeatureRequest, Option, Text
from plink.model.units import parse_duration

_MAX_FLOOR_US = 1e6


def _floor_us(text: str) -> float:
    """Return a floor in microseconds.

    :raises UsageError: for a bare number, which is seconds elsewhere.
    """
    seconds = parse_duration(text)
    if text.strip()[-1:].isdigit():
        raise UsageError(f"--floor {text}: of which unit? Write {text.strip()}us, or ms")
    return seconds * 1e6


# The smallest difference of a round trip that is reported, in microseconds.
_Floor = Annotated[float, Text("TIME", _floor_us, lambda us: f"{us:g}us" if us < _MAX_FLOOR_US else f"{us / 1e6:.9g}s")]


@dataclass(frozen=True)
class DiffRequest(FeatureRequest):
    """Request for the changes between two networks."""

    threshold: Annotated[
        float, Option("Smallest change to report, a share: 0.25 is a quarter.", least=0.01, most=100)
    ] = 0.25
    floor_us: Annotated[
        _Floor, Option("Smallest absolute change of a round trip to report.", ("--floor",), least=0, most=_MAX_FLOOR_US)
    ] = 10.0
    fail_on: Annotated[
        str, Option("Least severe regression that makes the exit code 1.", choices=("error", "warning"))
    ] = "warning"


@dataclass(frozen=True)
class DoctorRequest(FeatureRequest):
    """Request for the findings on hosts or on a network. ``fail_on`` is of the command alone."""

    floor_us: Annotated[
        _Floor, Option("Smallest excess of a round trip to report.", ("--floor",), least=0, most=_MAX_FLOOR_US)
    ] = 10.0
    fail_on: Annotated[
        str, Option("Least severe finding that makes the exit code 1.", choices=("error", "warning", "info"))
    ] = "warning"
    accept_new_host_keys: Annotated[
        bool, Option("Note unknown SSH host keys instead of refusing them.", ("--accept-new-host-keys",))
    ] = False
