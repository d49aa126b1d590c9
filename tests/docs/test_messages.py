"""The messages that the documentation explains are still said."""

import re

import pytest

from tests.docs.pages import ROOT

_PAGE = ROOT / "docs" / "troubleshooting.md"
_ELASTIC = ROOT / "docs" / "agileml.md"
_SOURCES = [path for room in ("plink", "probes", "runners", "solvers") for path in (ROOT / room).rglob("*.py")]
_LEAST = 8  # letters of a fixed part; shorter ones would be found anywhere
# What programs say, not plink.
_OF_OTHERS = {
    "Address already in use", "terminate called without an active exception", "unrecognized arguments: ...",
    "No module named ...",
}  # fmt: skip


def _messages() -> list[str]:
    """What stands in code font in the first column of their tables."""
    _, _, elastic = _ELASTIC.read_text().partition("\n| message | what to do |\n")
    pages = _PAGE.read_text() + elastic.partition("\n\n")[0]
    rows = [line for line in pages.splitlines() if line.startswith("| `")]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def _said() -> str:
    """The source with strings that are written in pieces joined, and blanks as one."""
    text = "\n".join(path.read_text() for path in _SOURCES)
    joined = re.sub(r"""["']\s*\n\s*f?["']""", "", text)
    return re.sub(r"\s+", " ", joined)


@pytest.fixture(scope="module")
def said() -> str:
    return _said()


def test_there_are_messages() -> None:
    assert len(_messages()) >= 50


@pytest.mark.parametrize("message", sorted(set(_messages()) - _OF_OTHERS))
def test_a_message_is_still_said(message: str, said: str) -> None:
    parts = [part.strip() for part in message.split("...")]
    assert any(len(part) >= _LEAST for part in parts)
    for part in parts:
        assert len(part) < _LEAST or part in said, part
