"""As much YAML as the manual page of Slurm's topology.yaml shows: lists and mappings by indentation, names, numbers.

A whole YAML reader would be one more dependency for one file. What goes beyond (anchors, tags, braces, texts over
several lines) is refused with its line, never guessed at.
"""

import re
from dataclasses import dataclass
from typing import Any

from plink.errors import InputError

_DEEPEST = 16
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?:\s+(.*))?")
_PLAIN = re.compile(r"[A-Za-z0-9_./~][^\"'{}&*!|>%@`]*")
_QUOTED = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str

    @property
    def is_item(self) -> bool:
        return self.text == "-" or self.text.startswith("- ")


def parse_yaml_subset(text: str, where: str) -> Any:
    """Lists, dicts with text keys, and texts (numbers and truth values too); None for what is left empty.

    :raises InputError: naming the first line that goes beyond.
    """
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        content = re.sub(r"(^|\s)#.*", "", raw).rstrip()
        if not content or (content == "---" and not lines):
            continue
        if "\t" in content:
            raise InputError(f"{where}:{number}", "a tab, which YAML does not indent by")
        lines.append(_Line(number, len(content) - len(content.lstrip()), content.strip()))
    return _Reader(lines, where).document()


class _Reader:
    def __init__(self, lines: list[_Line], where: str) -> None:
        self._lines = lines
        self._where = where
        self._at = 0

    def document(self) -> Any:
        if not self._lines:
            return None
        value = self._node(self._lines[0].indent, 0)
        if self._at < len(self._lines):
            raise self._beyond()
        return value

    def _beyond(self) -> InputError:
        line = self._lines[self._at]
        why = f"{line.text[:60]!r} is YAML beyond what plink reads; write a topology.conf instead"
        return InputError(f"{self._where}:{line.number}", why)

    def _here(self, indent: int) -> _Line | None:
        """The line in turn, if it stands at this indentation."""
        line = self._lines[self._at] if self._at < len(self._lines) else None
        return line if line is not None and line.indent == indent else None

    def _node(self, indent: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self._beyond()
        line = self._here(indent)
        assert line is not None
        if line.is_item:
            return self._list(indent, depth)
        return self._mapping(indent, depth) if _KEY.fullmatch(line.text) else self._scalar(line.text)

    def _list(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while (line := self._here(indent)) is not None and line.is_item:
            rest = line.text[1:].lstrip()
            if rest:
                # What follows the dash stands where it stands: lines below it are indented as far.
                inner = indent + len(line.text) - len(rest)
                self._lines[self._at] = _Line(line.number, inner, rest)
                items.append(self._node(inner, depth + 1))
            else:
                self._at += 1
                items.append(self._child(indent, depth, or_list=False))
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while (line := self._here(indent)) is not None and not line.is_item:
            match = _KEY.fullmatch(line.text)
            if match is None or match.group(1) in mapping:
                raise self._beyond()
            if match.group(2):
                mapping[match.group(1)] = self._scalar(match.group(2))
            else:
                self._at += 1
                mapping[match.group(1)] = self._child(indent, depth, or_list=True)
        return mapping

    def _child(self, indent: int, depth: int, or_list: bool) -> Any:
        """What is indented further than its key or dash; the items of a key's list may stand as far as the key."""
        line = self._lines[self._at] if self._at < len(self._lines) else None
        if line is not None and (line.indent > indent or (or_list and line.indent == indent and line.is_item)):
            return self._node(line.indent, depth + 1)
        return None

    def _scalar(self, text: str) -> Any:
        """The text of the line in turn, which is then done."""
        value: Any = None
        if text.startswith("[") and text.endswith("]"):
            value = [self._plain(piece.strip()) for piece in text[1:-1].split(",")]
        else:
            value = self._plain(text)
        self._at += 1
        return value

    def _plain(self, text: str) -> str:
        quoted = _QUOTED.fullmatch(text)
        if quoted is not None:
            return quoted.group(1) or quoted.group(2) or ""
        if not _PLAIN.fullmatch(text) or ": " in text or text.endswith(":"):
            raise self._beyond()
        return text
