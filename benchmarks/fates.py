"""What became of mutants, as docs/results/mutants.json keeps it, so that some of them can be asked about again."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutation import Place, places

KILLED, SURVIVED, NOT_ASKED = "killed", "survived", "not asked"
_EQUIVALENT = "equivalent"  # a judgement that begins so: no test can tell


@dataclass(frozen=True)
class Mutant:
    """One mistake in one module (a path from the root)."""

    module: str
    place: Place


@dataclass(frozen=True)
class Fate:
    """``what``: killed, survived or not asked. ``by``: the test that failed, or why it was not asked; of a survivor, a
    test that was written for it since, to be asked first. ``judgement``: of a survivor, a reader's."""

    mutant: Mutant
    what: str = NOT_ASKED
    by: str = ""
    judgement: str = ""

    @property
    def equivalent(self) -> bool:
        """Whether a reader found that it changes nothing that can be observed."""
        return self.judgement.startswith(_EQUIVALENT)

    @property
    def open(self) -> bool:
        """Whether it is to be asked (again): one that no test can or should tell is not."""
        return self.what == NOT_ASKED or (self.what == SURVIVED and (not self.judgement or bool(self.by)))


def written(fates: Iterable[Fate], root: Path) -> list[dict[str, Any]]:
    """Rows for JSON. A place is told by the text of its line, which stays what it is when others are put before it,
    and its number among the places there at which the same mistake can be made."""
    rows = []
    for fate in fates:
        module, place = fate.mutant.module, fate.mutant.place
        source = (root / module).read_text()
        code = _text(source, place)
        nth = _alike(source, code, place.what).index(place)
        rows.append(
            {"module": module, "line": place.line, "code": code, "mistake": place.what, "nth": nth,
             "fate": fate.what, "by": fate.by, "judgement": fate.judgement}
        )  # fmt: skip
    return rows


def read(rows: Sequence[dict[str, Any]], root: Path) -> tuple[list[Fate], list[str]]:
    """The fates of rows, and the places that are no longer there."""
    found, gone = [], []
    for row in rows:
        path = root / row["module"]
        here = _alike(path.read_text(), row["code"], row["mistake"]) if path.exists() else []
        if row["nth"] < len(here):
            mutant = Mutant(row["module"], here[row["nth"]])
            found.append(Fate(mutant, row["fate"], row["by"], row["judgement"]))
        else:
            gone.append(f"{row['module']}: {row['code']}")
    return found, gone


def _alike(source: str, code: str, what: str) -> list[Place]:
    """The places of one mistake on lines of one text."""
    return [place for place in places(ast.parse(source)) if place.what == what and _text(source, place) == code]


def _text(source: str, place: Place) -> str:
    return source.splitlines()[place.line - 1].strip()
