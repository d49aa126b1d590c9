"""Whatever stands in a file or comes over a line: a valid object, or one line that says what is wrong with it."""

import resource
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutating import mutated
from tests.fuzz.targets import Target, targets

TARGETS = targets()
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*-*"))
ROOM = 1 << 30  # bytes that a target may take beyond what this process has
EXAMPLES = 25  # of each kind; `make fuzz` goes on from there


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Who asks for more is told that there is none: a MemoryError, which no target may raise."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_what_is_as_it_should_be_is_taken() -> None:
    """Or the others would be about nothing: of each kind at least the first input is a good one."""
    assert [name for name, target in TARGETS.items() if not target(target.seeds[0])] == []


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_something_like_it_is_taken_or_refused_in_a_line(target: Target, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(target.seeds))
    target(mutated(seed, Random(data.draw(st.integers(0, 1 << 32)))))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=400))
def test_any_bytes_are_taken_or_refused_in_a_line(target: Target, data: bytes) -> None:
    target(data)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.name)
def test_what_was_wrong_once_is_right(path: Path) -> None:
    """Inputs that the guided fuzzer (``make fuzz``) or somebody found: TARGET-anything."""
    TARGETS[path.name.partition("-")[0]](path.read_bytes())
