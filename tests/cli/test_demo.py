"""What `plink demo` cannot show is refused before a lab is brought up."""

from pathlib import Path

import pytest

from tests.cli.files import refusal
from tests.conftest import typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "0"), "--size 0: an all-reduce has 4 bytes at least"),
        (("--size", "much"), "'much' is not a size"),
        (("--racks", "1000"), "--racks 1000: a lab has 1 to 64 racks"),
        (("--hosts-per-rack", "200"), "--hosts-per-rack 200: a lab has 1 to 512 hosts in all"),
        (("--racks", "1", "--hosts-per-rack", "1"), "--racks 1 --hosts-per-rack 1: one host has no order"),
    ],
)
def test_what_cannot_be_shown_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert refusal(typed("demo", *words, cwd=tmp_path)).startswith(message)
