"""Groups of hosts, as a file lists them: one group a line, or ``plink.groups/1``."""

from pathlib import Path

from plink.errors import InputError
from plink.hosts import check_name
from plink.storage import name_of, parse_document, read_text


def read_groups(path: str | Path) -> list[list[str]]:
    """The names in each group: a line each, separated by blanks or commas, ``#`` begins a comment; or JSON with a list
    of lists of names under ``groups``.

    :raises InputError: when the file cannot be read, holds no groups or a name that is none, naming the place.
    """
    where, text = name_of(path), read_text(path)
    if text.lstrip().startswith("{"):
        found = parse_document(text, where).get("groups")
        if not isinstance(found, list) or not all(isinstance(group, list) for group in found):
            raise InputError(f"{where}: groups", "a list of lists of host names was expected")
        rows = [(f"{where}: groups[{k}]", group) for k, group in enumerate(found)]
    else:
        lines = enumerate(text.splitlines(), 1)
        rows = [(f"{where}:{k}", line.partition("#")[0].replace(",", " ").split()) for k, line in lines]
        rows = [(at, names) for at, names in rows if names]
    groups = [[check_name(name, at) for name in names] for at, names in rows]
    if not groups:
        raise InputError(where, "no groups: write one a line, the names of its hosts separated by blanks")
    return groups
