"""Lines of hosts files: plink's own, and those that launchers and schedulers read or write.

Slots of a host are ``slots=N`` (Open MPI, Horovod, DeepSpeed), ``host:N`` (MPICH, Intel MPI, Horovod's ``-H``),
``host N`` (Grid Engine's ``$PE_HOSTFILE``), or a line for each (PBS, Slurm, Open MPI's sequential mapper and
rankfiles, LightGBM, Kubernetes' pod indices, torchrun's commands). Several hosts of a line are a list as Slurm's.
"""

import re
from dataclasses import dataclass

from plink.errors import InputError
from plink.model.hostlist import expand_hostlist

KEYS = ("slots", "role", "tier", "address", "user", "port", "key", "price", "gbps")
_FIRST_PORT = 1024  # numbers from here on are ports: of LightGBM's machine list where nothing makes them SSH's
_SSH_PORT = "22"
_ALIASES = {
    **dict.fromkeys(("cpu", "cpus", "count", "np", "ppn"), "slots"),  # Open MPI's and Torque's
    **dict.fromkeys(("username", "user_name", "user-name"), "user"),
}
# An upper bound on oversubscription, of which plink makes none.
_UPPER_BOUND = re.compile(r"max[-_](cpus?|count|slots)|(cpus?|count|slots)[-_]max")
# What launchers know of processors and bindings, which plink leaves to them.
_UNUSED = re.compile(r"slot_list|cpu[-_]set|boards|(sockets|cores)([-_]per[-_](board|socket))?|binding|ifhn")
# Other names of the same, which are too vague to be read.
_LIKE_SLOTS = re.compile(r"slots?|cpus?|n?gpus?(-per-node)?|procs|n?tasks(-per-node)?|ranks", re.IGNORECASE)
# Lines whose host is not their first word, with a rank (or that of a node); a slot a line where they do not tell more.
_LINES = tuple(
    re.compile(pattern)
    for pattern in (
        r"rank\s+(?P<rank>\d{1,9})\s*=\s*(?P<host>\S+)\s+slots?\s*=.*",  # Open MPI's rankfile
        r"torchrun\s(?=([^#]*?--node[-_]rank[= ](?P<rank>\d{1,9})\s)?)"
        r"(?>[^#]*?--nproc[-_]per[-_]node[= ](?P<slots>\d+))\s[^#]*+#\s*(?P<host>\S+)",
        r"RANK=(?P<rank>\d{1,9})\s[^#]*+#\s*(?P<host>\S+)",
        r"(?P<rank>\d{1,9})\s+(?P<host>(?!\d+\s*(#|$))[^\s=#]+)\s*(#.*)?",  # the node of a pod index
    )
)
_SETTING = re.compile(r"(?P<key>[^\s=]+)\s*=\s*(?P<value>\S+)|\S+")
_COMMENT = re.compile(r"#.*|(^|\s)//.*")  # the second is Open MPI's
_IPV6 = re.compile(r"\[([^\[\],]*:[^\[\],]*)\](?::(\d{1,9}))?")
_NUMBERED = re.compile(r"([^:]+):(\d{0,9})")
_COLUMN = re.compile(r"(\d{1,9})(\s+[^\s=]*(@|\.q)[^\s=]*\s+[^\s=]+)?")  # Grid Engine adds a queue and processors


@dataclass(frozen=True)
class HostLine:
    """One host of a line. ``fields``: its settings as text, ``slots`` among them where the line has ``slots=N``;
    ``count``: the slots that the line adds where it has not; ``notes``: what it says and plink does not follow."""

    host: str
    fields: dict[str, str]
    count: str | None
    notes: tuple[str, ...] = ()


def lines_by_rank(text: str, source: str) -> list[tuple[int, str]]:
    """Return number and text of each line; lines that have a rank are last, in the order of ranks.

    :raises InputError: for ranks that do not count from 0 or 1, and for a host without one among them, with the line.
    """
    others, ranked = [], []
    for number, raw in enumerate(text.splitlines(), start=1):
        match = _match(raw)
        if match and match["rank"]:
            ranked.append((int(match["rank"]), number, raw))
        else:
            others.append((number, raw))
    first = 1 if ranked and min(ranked)[0] == 1 else 0
    for expected, (rank, number, _) in enumerate(sorted(ranked), start=first):
        if rank != expected:
            problem = "is given twice" if rank < expected else f"is there, and rank {expected} is not"
            raise InputError(f"{source}:{number}", f"rank {rank} {problem}; ranks count from 0 or 1")
    for number, raw in others if ranked else []:
        if _COMMENT.sub("", raw).strip():
            raise InputError(f"{source}:{number}", "no rank is on this line, other lines have one")
    return [*others, *((number, raw) for _, number, raw in sorted(ranked))]


def _match(raw: str) -> re.Match[str] | None:
    """Return the match of a line whose host is not its first word."""
    return next(filter(None, (pattern.fullmatch(raw.strip()) for pattern in _LINES)), None)


def parse_line(raw: str, location: str) -> list[HostLine]:
    """Return the hosts of a line, none of one that is empty or a comment.

    :raises InputError: for a setting that plink does not know, or that is given twice.
    """
    if match := _match(raw):
        return [HostLine(match["host"], {}, match.groupdict().get("slots", "1"))]
    first, *rest = _COMMENT.sub("", raw).split(None, 1) or [""]
    if not first:
        return []
    user, at, listed = first.rpartition("@")
    column = _COLUMN.fullmatch(rest[0].strip()) if rest else None
    fields, notes = _settings(rest[0] if rest and not column else "", {"user": user} if at else {}, location)
    lines = []
    for host, number in _listed(listed, location):
        if number is not None and column:
            raise InputError(location, f"slots are given twice, {number} and {column[1]}")
        is_ssh = number is not None and (number == _SSH_PORT or int(number) >= _FIRST_PORT)
        if number is not None and is_ssh and not {"slots", "user", "key"}.isdisjoint(fields):
            if "port" in fields:
                raise InputError(location, f"ports are given twice, {number} and {fields['port']}")
            lines.append(HostLine(host, fields | {"port": number}, None if "slots" in fields else "1", notes))
        elif number is not None and "slots" in fields:
            raise InputError(location, f"slots are given twice, {number} and {fields['slots']}")
        else:
            lines.append(_host_line(host, column[1] if column else number, fields, notes))
    return lines


def _settings(text: str, fields: dict[str, str], location: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return ``key=value`` settings, spaces around ``=`` allowed, and a note on each that plink does not follow."""
    notes = []
    for match in _SETTING.finditer(text):
        if match["key"] is None:
            raise InputError(location, f"{match[0]!r} is not of the form key=value; write one host a line")
        key, value = _ALIASES.get(match["key"], match["key"]), match["value"]
        if _UNUSED.fullmatch(key):
            notes.append(f"{key}= is for another launcher, and plink does not follow it")
        elif not _UPPER_BOUND.fullmatch(key):
            if key not in KEYS:
                hint = "did you mean slots=?" if _LIKE_SLOTS.fullmatch(key) else f"known are {', '.join(KEYS)}"
                raise InputError(location, f"unknown key {key!r}; {hint}")
            if key in fields:
                raise InputError(location, f"{key} is given twice")
            fields[key] = value
    return fields, tuple(notes)


def _listed(text: str, location: str) -> list[tuple[str, str | None]]:
    """Return each name of ``a``, ``a:2,b:2``, ``node[1-4]``, ``node[1-4]:2`` or ``[::1]:2``, with its number."""
    if match := _IPV6.fullmatch(text):
        return [(match[1], match[2])]
    names = expand_hostlist(text, location) if "[" in text or "," in text else [text]
    return [(match[1], match[2] or None) if (match := _NUMBERED.fullmatch(name)) else (name, None) for name in names]


def _host_line(host: str, number: str | None, fields: dict[str, str], notes: tuple[str, ...]) -> HostLine:
    """Return the line of a host with ``number`` behind its name: slots, or a port of LightGBM."""
    if number is None:
        return HostLine(host, fields, None if "slots" in fields else "1", notes)
    is_port = int(number) >= _FIRST_PORT
    if is_port or number == _SSH_PORT:
        meaning = "a port of LightGBM's, a slot a line" if is_port else "slots"
        notes = (*notes, f"the number is taken for {meaning}; if it is SSH's, write port=N")
    return HostLine(host, fields, "1" if is_port else number, notes)
