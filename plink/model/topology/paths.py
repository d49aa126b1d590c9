"""Paths from the top of the network to each machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from plink.errors import InputError
from plink.model.hostlist import MAX_HOSTS, check_name
from plink.model.hosts import Host, Hosts

MAX_LEVELS = 16

Path = tuple[str | None, ...]


@dataclass(frozen=True)
class Topology:
    """Topology of one file, hosts in its order.

    ``paths``: of each host the names of what it hangs under, top first and the nearest last. ``None`` stands for a
    level the provider would not name: from there down nothing is known. A path that ends has nothing below its end; the
    host itself is not part of it. Levels are compared together with all above them, so a name may come back elsewhere.
    ``kind``: the format. ``aliases``: other names and addresses of a host. ``location`` names the file in errors,
    ``hint`` says what to do where it tells no hosts apart.
    """

    paths: dict[str, Path]
    kind: str
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    location: str = "topology"
    hint: str = ""


def path_of(outer: Sequence[str | None], inner: Sequence[str | None]) -> Path:
    """Return a path from levels in columns, top first, None where a level is not named.

    ``outer`` (region, zone) is left out where not named. Of ``inner``, a gap with something below it stays None, the
    end is cut off, and if nothing is left, one None stands for all of it.
    """
    named = [level for level, name in enumerate(inner) if name is not None]
    rest = tuple(inner[: named[-1] + 1]) if named else (None,)
    return (*(name for name in outer if name is not None), *rest)


def hosts_of(topology: Topology) -> Hosts:
    """Return the hosts of the file, in its order, each reached under its own name."""
    return Hosts(tuple(Host(name, name) for name in topology.paths))


class TopologyBuilder:
    """Builder of a topology: refuses repeated hosts, too many hosts and too many levels."""

    def __init__(self, kind: str, location: str, hint: str = "") -> None:
        self._paths: dict[str, Path] = {}
        self._aliases: dict[str, tuple[str, ...]] = {}
        self._kind = kind
        self._location = location
        self._hint = hint

    def add(self, name: object, path: Path, place: str, aliases: Sequence[str | None] = ()) -> None:
        """Add a host, or the same once more; ``place`` names its entry in errors.

        :raises InputError: for a name that cannot be a host's or came before elsewhere, for too many hosts or levels.
        """
        checked = check_name(name, place)
        if self._paths.get(checked, path) != path:
            below = [
                repr("/".join(name or "?" for name in levels)) if levels else "nothing"
                for levels in (self._paths[checked], path)
            ]
            raise InputError(place, f"host {checked!r} is listed twice, below {' and '.join(below)}")
        if len(self._paths) >= MAX_HOSTS:
            raise InputError(place, f"more than {MAX_HOSTS} hosts in one file")
        if len(path) > MAX_LEVELS:
            raise InputError(place, f"{len(path)} levels are more than the {MAX_LEVELS} that plink reads")
        self._paths[checked] = path
        other_names = tuple(dict.fromkeys(alias for alias in aliases if alias and alias != checked))
        if other_names:
            self._aliases[checked] = other_names

    def topology(self) -> Topology:
        """Return the topology.

        :raises InputError: when there are none, or nothing is said about any.
        """
        if not self._paths:
            raise InputError(self._location, "no hosts in it")
        if not any(name is not None for path in self._paths.values() for name in path):
            raise InputError(self._location, f"it lists hosts without their positions in the network{self._hint}")
        return Topology(self._paths, self._kind, self._aliases, self._location, self._hint)
