"""Check that names and messages use the field's words: ``python -m tools.retired_words [PATH...]``.

plink had words of its own for what MPI, PyTorch and Slurm have names for. The words below stay out of the names that
the code defines and of the texts that it shows. docs/glossary.md has the words that are used.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# Retired, with their inflections, wherever they are a part of a name, as in ``SeatMap`` or ``next_seat``, and as words
# of a message. At most 40 words with those below: a longer list would be a dictionary again.
ANYWHERE = {
    "conductor": "scheduler", "crew": "pool", "dealt": "assigned", "dearest": "highest cost", "door": "listener",
    "errand": "task", "gentle": "low priority", "heir": "migration target",
    "judge": "validate", "keeper": "supervisor", "laggard": "straggler", "lane": "channel", "lifeline": "channel",
    "nonsense": "protocol error", "owed": "pending", "pace": "timing",
    "rehearsal": "dry run", "rehearse": "dry run", "rescue": "evacuate", "seat": "assignment",
    "settle": "converge or resolve", "stranger": "unauthenticated client", "survey": "session",
    "told": "notified or reported", "toll": "penalty", "unsure": "in doubt", "wander": "drift",
    "wish": "constraint or request", "workplace": "environment",
}  # fmt: skip
# Retired as a whole name: it does not say what the value is.
ALONE = {
    "asked": "request", "found": "result", "given": "argument", "heard": "output", "kept": "kept_hosts",
    "known": "cache", "one": "item", "said": "message", "why": "error or reason",
}  # fmt: skip
# Names that others give, or that a file format has, by path: with the reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("plink/features/elastic/run.py", "why"): "key of a log line, docs/formats.md",
    ("plink/features/elastic/summary.py", "why"): "key of plink.elastic-summary",
    ("plink/model/elastic/summary.py", "why"): "key of plink.elastic and plink.elastic-summary",
    ("plink/model/run.py", "why"): "key of plink.run",
    ("plink/records/elastic_log.py", "why"): "key of a log line, docs/formats.md",
    ("solvers/elastic/decisions.py", "why"): "key of a log line, docs/formats.md",
    ("solvers/elastic/progress.py", "why"): "key of a log line, docs/formats.md",
    ("solvers/elastic/resuming.py", "why"): "key of a log line, docs/formats.md",
    ("tests/solvers/costs/test_fabric.py", "why"): "key of a shared link in plink.network",
    ("tests/features/report/test_bandwidths.py", "why"): "key of a shared link in plink.network",
}
# Files that quote retired words: this list, and its test.
QUOTING = ("tools/retired_words.py", "tests/test_retired_words.py")
# Packages of the product, in which no two public classes share a name.
PRODUCT = ("plink", "probes", "runners", "solvers")


def defined_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, parameter and variable that a module defines."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str()):
                yield getattr(node, "lineno", 0), node.asname
            case ast.keyword(arg=str()):
                yield node.value.lineno, node.arg


def shown_texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string constant that is no docstring."""
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case and without a plural's s: ``NextSeats`` is next, seat."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    return [word.removesuffix("es") if word in ("wishes",) else word.removesuffix("s") for word in words]


def _inflections(word: str) -> set[str]:
    """Return a word and its forms: settle, settles, settled, settling."""
    stem = word.removesuffix("e")
    return {word, f"{word}s", f"{stem}ed", f"{stem}ing"}


RETIRED = {form: word for word in ANYWHERE for form in _inflections(word)}


def shared_class_names(paths: list[str]) -> Iterator[str]:
    """Yield a line for each name that two public classes of the product have."""
    places: dict[str, list[str]] = {}
    for path in paths:
        if path.endswith(".py") and path.split("/")[0] in PRODUCT:
            for node in ast.parse(Path(path).read_text(encoding="utf-8"), path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    for name, locations in sorted(places.items()):
        if len(locations) > 1:
            yield f"{locations[0]}: class {name!r} is also in {', '.join(locations[1:])}: one name, one meaning"


def problems_in(path: str) -> Iterator[str]:
    """Yield a line for each retired word of a file."""
    if path.endswith(".py"):
        stem = Path(path).stem
        for word in RETIRED.keys() & set(words_of(stem)):
            yield f"{path}: file name: {word!r}: say {ANYWHERE[RETIRED[word]]}"
        nodes = list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"), path)))
        for line, name in sorted(set(defined_names(nodes))):
            if (path, name) in ALLOWED:
                continue
            whole = name.strip("_").lower()
            if whole in ALONE:
                yield f"{path}:{line}: name {name!r}: say {ALONE[whole]}, or what it is"
            for word in RETIRED.keys() & set(words_of(name)):
                yield f"{path}:{line}: name {name!r}: say {ANYWHERE[RETIRED[word]]}"
        for line, text in shown_texts(nodes):
            for word in RETIRED.keys() & set(re.findall(r"[a-z]+", text.lower())):
                yield f"{path}:{line}: text with {word!r}: say {ANYWHERE[RETIRED[word]]}"


def main() -> int:
    """Print each retired word that is left in the given files or folders; exit code 1 if there is any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH")
    listed = subprocess.run(
        ["git", "ls-files", "--", *parser.parse_args().paths], capture_output=True, text=True, check=True
    )
    paths = listed.stdout.split()
    lines = [line for path in paths if path not in QUOTING for line in problems_in(path)]
    lines += shared_class_names(paths)
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
