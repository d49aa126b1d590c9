"""Slurm's topology.conf: one switch or block a line, ``Key=value``, keys in any case (topology.conf(5))."""

import re
from collections.abc import Iterator

from plink.errors import InputError
from plink.model.topology.paths import Topology
from plink.model.topology.slurm import Vertex, from_blocks, from_switches

# A word is tried from its beginning alone: from each of its letters it would take its length squared.
_SETTING = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)=(\"[^\"]*\"|\S*)")
_FIRST = re.compile(r"^[ \t]*(switchname|blockname|blocksizes|ringname)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes")


def is_slurm_conf(text: str) -> bool:
    """Whether some line begins as those of a topology.conf do."""
    return _FIRST.search(text) is not None


def from_slurm_conf(text: str, where: str) -> Topology:
    """The topology of ``topology/tree`` or ``topology/block``.

    :raises InputError: naming the line that is wrong.
    """
    switches: list[Vertex] = []
    blocks: list[Vertex] = []
    sizes: list[int] = []
    sizes_where = where
    for number, line in _lines(text):
        here = f"{where}:{number}"
        settings = _settings(line, here)
        nodes = settings.get("nodes")
        if "switchname" in settings:
            switches.append(Vertex(settings["switchname"], settings.get("switches"), nodes, here))
        elif "blockname" in settings:
            blocks.append(Vertex(settings["blockname"], None, nodes, here))
        elif "blocksizes" not in settings:
            raise InputError(here, "neither SwitchName, BlockName nor BlockSizes is on this line")
        if "blocksizes" in settings:
            sizes, sizes_where = block_sizes(settings["blocksizes"].split(","), here), here
    if switches and (blocks or sizes):
        raise InputError(where, "it has both switches and blocks; Slurm reads one of them")
    return from_blocks(blocks, sizes, sizes_where, where) if blocks else from_switches(switches, where)


def block_sizes(texts: list[str], where: str) -> list[int]:
    """``BlockSizes`` as numbers.

    :raises InputError: when one is no whole number from 1 on.
    """
    for text in texts:
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise InputError(where, f"block size {text[:80]!r} is not a whole number from 1 on")
    return [int(text) for text in texts]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """What is on each line, without comments; a backslash at the end joins it to the next."""
    begun, pending = 0, ""
    for number, raw in enumerate(text.splitlines(), start=1):
        begun = begun if pending else number
        content = raw.split("#", 1)[0].rstrip()
        line = pending + (content.lstrip() if pending.endswith(",") else content)
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        pending = ""
        if line.strip():
            yield begun, line.strip()
    if pending.strip():
        yield begun, pending.strip()


def _settings(line: str, here: str) -> dict[str, str]:
    """Keys in small letters, values without their quotes."""
    rest = _SETTING.sub("", line).split()
    if rest:
        raise InputError(here, f"{rest[0][:80]!r} is not of the form Key=value")
    settings: dict[str, str] = {}
    for key, value in _SETTING.findall(line):
        if key.lower() == "ringname":
            raise InputError(here, "topology/ring is not read, only tree and block")
        if key.lower() not in _KEYS:
            raise InputError(
                here, f"unknown key {key[:40]!r}; known are SwitchName, Switches, Nodes, BlockName, BlockSizes"
            )
        if key.lower() in settings:
            raise InputError(here, f"{key} is given twice")
        settings[key.lower()] = value.strip('"')
        if not settings[key.lower()]:
            raise InputError(here, f"{key} has no value")
    return settings
