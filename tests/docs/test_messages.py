"""Messages that the documentation explains are in the source."""

import re

from tests.docs.pages import ROOT

_PAGE = ROOT / "docs" / "troubleshooting.md"
_ELASTIC = ROOT / "docs" / "elastic.md"
_SOURCES = [path for package in ("plink", "probes", "runners", "solvers") for path in (ROOT / package).rglob("*.py")]
_MIN_LETTERS = 8  # letters of a fixed part; shorter ones would be found anywhere
# Messages of other programs.
_MESSAGES_OF_OTHER_PROGRAMS = {
    "Address already in use", "terminate called without an active exception", "unrecognized arguments: ...",
    "No module named ...", "Bad configuration option: ...", "Bad Match condition",
}  # fmt: skip


def _messages() -> list[str]:
    """Return the code spans in the first column of the tables."""
    _, _, elastic = _ELASTIC.read_text().partition("\n| message | what to do |\n")
    pages = _PAGE.read_text() + elastic.partition("\n\n")[0]
    rows = [line for line in pages.splitlines() if line.startswith("| `")]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def _source() -> str:
    """Return the source with adjacent string literals joined and blanks as one."""
    text = "\n".join(path.read_text() for path in _SOURCES)
    joined = re.sub(r"""["']\s*\n\s*f?["']""", "", text)
    return re.sub(r"\s+", " ", joined)


def test_messages_of_the_pages_are_in_the_source() -> None:
    messages, source = sorted(set(_messages()) - _MESSAGES_OF_OTHER_PROGRAMS), _source()
    assert len(messages) >= 50
    for message in messages:
        parts = [part.strip() for part in message.split("...")]
        assert any(len(part) >= _MIN_LETTERS for part in parts), message
        assert [part for part in parts if len(part) >= _MIN_LETTERS and part not in source] == [], message
