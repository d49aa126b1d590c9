"""The messages that the documentation explains are still said."""

import re

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


def test_messages_of_the_pages_are_in_the_source() -> None:
    messages, source = sorted(set(_messages()) - _OF_OTHERS), _said()
    assert len(messages) >= 50
    for message in messages:
        parts = [part.strip() for part in message.split("...")]
        assert any(len(part) >= _LEAST for part in parts), message
        assert [part for part in parts if len(part) >= _LEAST and part not in source] == [], message
