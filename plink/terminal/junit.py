"""Results for CI: JUnit's XML, which Jenkins, GitLab, GitHub's actions and most others show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from plink.errors import printable
from plink.model.storage import write_text


@dataclass(frozen=True)
class Case:
    """A test case. ``ok`` None: the result is unknown; ``seconds``: its duration, where known."""

    suite: str
    name: str
    ok: bool | None
    text: str
    seconds: float = 0.0


def write_junit(path: Path, cases: Sequence[Case]) -> None:
    """Write the cases as JUnit XML, one suite after the other. Cases with the same name in a suite are numbered,
    because GitLab shows only one of them otherwise.

    :raises PlinkError: when it cannot be written.
    """
    top = ElementTree.Element("testsuites", {"name": "plink", **_counts(cases)})
    for suite in dict.fromkeys(case.suite for case in cases):
        members = [case for case in cases if case.suite == suite]
        parent = ElementTree.SubElement(top, "testsuite", {"name": printable(suite), **_counts(members)})
        for k, case in enumerate(members, start=1):
            occurrence = sum(other.name == case.name for other in members[:k])
            name = printable(case.name) if occurrence == 1 else f"{printable(case.name)} ({occurrence})"
            node = ElementTree.SubElement(
                parent, "testcase", classname=f"plink.{printable(suite)}", name=name, time=f"{case.seconds:.3f}"
            )
            if case.ok:
                ElementTree.SubElement(node, "system-out").text = _printable(case.text)
            else:
                kind = "error" if case.ok is None else "failure"
                ElementTree.SubElement(node, kind, message=_printable(case.text)).text = _printable(case.text)
    ElementTree.indent(top)
    write_text(path, ElementTree.tostring(top, "unicode", xml_declaration=True) + "\n")


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.ok is False for case in cases)),
        "errors": str(sum(case.ok is None for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _printable(text: str) -> str:
    """Replace control characters, which XML cannot hold, in a text that may have lines."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text)
