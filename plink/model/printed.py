"""Recognise files that hold a command's text output, or nothing, instead of JSON."""

import re

_EMPTY = "the file is empty; what plink writes is in .plink/, or goes where `-o FILE` says"
_PRINTED_TEXTS = (
    (
        re.compile(r"[\w.-]+, [\w-]+, \d+ ranks[^:]*: \d+ rounds, \d+ transfers of \d+ chunks\s*$"),
        "this is the text for people that `plink schedule` prints; `-o FILE` or `--json` writes the schedule",
    ),
    (
        re.compile(r"[\w.-]+, \d+ ranks( in \d+ groups)?, [^,]+, model [\w-]+(: .*)?$"),
        "this is the text for people that `plink plan` and `plink cost` print; `plink plan -o FILE` or `--json` "
        "writes the plan",
    ),
)


def instead_of_json(text: str) -> str | None:
    """Explain a text that should be JSON and is not, None without an explanation."""
    if not text.strip():
        return _EMPTY
    first = text.split("\n", 1)[0]
    return next((explanation for pattern, explanation in _PRINTED_TEXTS if pattern.match(first)), None)
