"""Proof that NCCL follows the order: what it says it built, against what the order and the measured addresses imply.

Forms of the lines are those of NVIDIA/nccl from v2.8.4-1 to v2.30.7-1 (src/debug.cc, src/init.cc, src/graph/rings.cc,
src/enqueue.cc, src/transport/net_socket.cc and net_ib.cc).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.run import NcclChoice, NcclCommunicator, NcclProof
from plink.model.units import format_bytes
from plink.transport.addresses import canonical
from solvers.schedules.trees import nccl_tree_parents

# What makes NCCL print all that is read here. Lines of one rank arrive in order, those of its threads mixed.
ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,TUNING"}

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")

_LINE = re.compile(r":(?P<thread>\d+:\d+) \[\d+\] (?:\S+ )?NCCL (?:INFO|WARN) (?P<text>.*)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_MADE = re.compile(
    r"comm 0x\w+ rank (?P<rank>\d+) nranks (?P<ranks>\d+) (?:.*commId (?P<id>0x\w+)|.*(?P<split>(?:splitCount \d+ )?"
    r"color -?\d+))?.*Init COMPLETE"
)
_RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)$")
_CHANNEL = re.compile(r"Channel (\d+)/\d+ : *((?: *\d+)+)$")
_TREES = re.compile(r"Trees((?: \[\d+\] \S+)+)")
_TREE = re.compile(r"\[(\d+)\] ([-\d/]+)->(\d+)->(-?\d+)(?=\s|$)")
_CUT_FROM = 1000  # characters: NCCL's lines have 1,023 at most, and the last number of such a one may lack digits
# What launchers and NCCL print before the host; anything else there is the program's.
_PREFIX = re.compile(
    r"\[[^\]]*\]\S*|<\w+>:?|\S+:(?=\s)|\d{4}-\d\d-\d\dT?|\b[A-Z][a-z]{2} [ \d]\d\b|\d\d:\d\d:\d\d[.,]?\d*Z?"
)
_NET = re.compile(r"NET/(\w+) : Using(?P<devices>(?: \[\d+\]\S+)*)")
_CHOICE = re.compile(
    r"(?:(?P<func>\w+): )?(?P<bytes>\d+) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+)"
    r"(?: channel\S*=\{(\d+)\.\.(\d+)\})?"
)


@dataclass
class _Pending:
    """Links that a thread of a rank has printed of the communicator that it makes, by channel."""

    rings: dict[int, tuple[int, int]] = field(default_factory=dict)  # previous and next rank
    whole_rings: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by the communicator's rank 0
    parents: dict[int, int] = field(default_factory=dict)


@dataclass
class NcclLog:
    """NCCL's lines of all ranks of a job."""

    _pending: dict[tuple[int, str], _Pending] = field(default_factory=lambda: defaultdict(_Pending))
    # By identity and size: the rank of the job and the links of each rank of the communicator.
    _made: dict[tuple[str, int, int], dict[int, tuple[int, _Pending]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _choices: set[NcclChoice] = field(default_factory=set)
    _networks: dict[int, str] = field(default_factory=dict)

    def take(self, rank: int, line: str) -> bool:
        """Read a line of a rank. Returns whether it is one of NCCL's information."""
        line = _COLOUR.sub("", line).rstrip()
        match = _LINE.search(line)
        if match is None:
            return False
        text, pending = match["text"], self._pending[rank, match["thread"]]
        if ring := _RING.match(text):
            channel, before, _, after = map(int, ring.groups())
            pending.rings[channel] = (before, after)
        elif whole := _CHANNEL.match(text):
            pending.whole_rings[int(whole[1])] = tuple(map(int, whole[2].split()))
        elif trees := _TREES.match(text):
            read = list(_TREE.finditer(trees[1]))
            for tree in read[:-1] if len(line) >= _CUT_FROM else read:
                pending.parents[int(tree[1])] = int(tree[4])
        elif made := _MADE.search(text):
            self._complete(rank, match["thread"], made)
        elif net := _NET.match(text):
            self._networks[rank] = f"{net[1]}{net['devices']}"
        elif choice := _CHOICE.match(text):
            self._choose(choice)
        words = _PREFIX.sub(" ", line[: match.start()]).split()
        return " NCCL INFO " in line and len(words) < 2  # the host's name

    def _complete(self, rank: int, thread: str, made: re.Match[str]) -> None:
        """Give what a thread has printed to the communicator that is complete with this line."""
        name, ranks = made["id"] or made["split"] or "", int(made["ranks"])
        nth = 0  # names repeat: of splits of one colour (2.18 to 2.22), and NCCL before 2.18 prints none
        while int(made["rank"]) in self._made[name, ranks, nth]:
            nth += 1
        self._made[name, ranks, nth][int(made["rank"])] = (rank, self._pending.pop((rank, thread), _Pending()))

    def _choose(self, choice: re.Match[str]) -> None:
        algo, proto = choice["algo"], choice["proto"]
        if algo.isdigit():  # before 2.23
            algo, proto = (
                names[int(number)] if int(number) < len(names) else number
                for number, names in ((algo, _ALGORITHMS), (proto, _PROTOCOLS))
            )
        channels = None if choice[5] is None else int(choice[6]) - int(choice[5]) + 1
        made = NcclChoice(
            collective=choice["func"] or "",
            size_bytes=int(choice["bytes"]),
            algorithm=algo,
            protocol=proto,
            channels=channels,
        )
        self._choices.add(made)

    def proof(self, hosts: Hosts) -> NcclProof:
        """Return the verdict.

        :param hosts: in rank order, with the addresses that were measured.
        """
        host_of = [host.name for host in hosts for _ in range(host.slots)]
        communicators, problems = [], [] if self._made else ["no rank said that NCCL made a communicator"]
        for (_, size, _), members in self._made.items():
            if len(members) == size:
                communicators.append(_communicator([members[k] for k in range(size)], host_of))
            else:
                problems.append(f"of a communicator of {size} ranks only {len(members)} said what they built")
        networks = {host_of[rank]: text for rank, text in sorted(self._networks.items(), reverse=True)}
        problems += [*_other_networks(hosts, networks), *(text for each in communicators for text in each.problems)]
        return NcclProof(
            communicators=tuple(communicators),
            choices=tuple(
                sorted(
                    self._choices,
                    key=lambda each: (
                        each.collective,
                        each.size_bytes,
                        each.algorithm,
                        each.protocol,
                        each.channels or 0,
                    ),
                ),
            ),
            networks=networks,
            problems=tuple(dict.fromkeys(problems)),
        )


def _communicator(members: Sequence[tuple[int, _Pending]], host_of: Sequence[str]) -> NcclCommunicator:
    """Return the verdict on a communicator, by the ranks of the job and the links of its ranks."""
    ranks = tuple(rank for rank, _ in members)
    hosts = [host_of[rank] for rank in ranks]
    whole = members[0][1].whole_rings
    channels = sorted({*whole, *(channel for _, links in members for channel in links.rings)})
    problems: list[str] = []
    for channel in channels:
        after = {k: links.rings[channel][1] for k, (_, links) in enumerate(members) if channel in links.rings}
        if len(after) < len(ranks) and len(ring := whole.get(channel, ())) == len(ranks):
            after = dict(zip(ring, (*ring[1:], ring[0]), strict=True))
        if len(after) < len(ranks):
            problems.append(f"ring {channel}: not all of its ranks said where they send")
        else:
            problems += _moved(hosts, after, f"ring {channel}")
    problems += _other_trees(hosts, members)
    if not channels and len(set(hosts)) > 1:
        problems.append(f"a communicator of {len(ranks)} ranks did not say which rings it built")
    trees = sum(all(channel in links.parents for _, links in members) for channel in channels)
    return NcclCommunicator(ranks=ranks, channels=len(channels), trees=trees, problems=tuple(dict.fromkeys(problems)))


def _moved(hosts: Sequence[str], after: Mapping[int, int], what: str) -> Iterator[str]:
    """Yield the hosts that send to another host than in rank order."""
    nodes = list(dict.fromkeys(hosts))
    wanted = dict(zip(nodes, (*nodes[1:], nodes[0]), strict=True))
    for k, following in after.items():
        here, there = hosts[k], hosts[following]
        if here != there and there != wanted[here]:
            yield f"{what}: {here} sends to {there}, by the order it sends to {wanted[here]}"


def _other_trees(hosts: Sequence[str], members: Sequence[tuple[int, _Pending]]) -> Iterator[str]:
    """Yield the hosts with another parent than in the one of NCCL's two trees that a channel follows."""
    nodes = list(dict.fromkeys(hosts))
    trees = [[nodes[p] if p >= 0 else None for p in tree] for tree in nccl_tree_parents(len(nodes))]
    above = defaultdict[int, dict[str, str]](dict)  # by channel and host
    for k, (_, links) in enumerate(members):
        for channel, parent in links.parents.items():
            if parent >= 0 and hosts[parent] != hosts[k]:
                above[channel][hosts[k]] = hosts[parent]
    for channel, parents in sorted(above.items()):
        wanted_of = [{host: tree[nodes.index(host)] for host in parents} for tree in trees]
        moved = [
            [(host, wanted[host], parent) for host, parent in parents.items() if wanted[host] != parent]
            for wanted in wanted_of
        ]
        for host, above_it, other in min(moved, key=len):
            yield f"tree {channel}: {host} sends up to {other}, by the order " + (
                "it is the root" if above_it is None else f"to {above_it}"
            )


def _other_networks(hosts: Hosts, networks: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts whose measured address NCCL does not use."""
    for host in hosts:
        used = networks.get(host.name, "")
        address = canonical(host.address)  # None: a name, which NCCL does not print
        if used.startswith("Socket") and address is not None and f":{address}<" not in used:
            yield f"{host.name}: NCCL sends by {used.partition(' ')[2]}, measured was {address}"


def proof_lines(proof: NcclProof) -> Iterator[str]:
    """Yield what NCCL built and took, for people."""
    for each in proof.communicators:
        if not each.problems:
            verdict, unknown = "rings and trees follow the order", ""
            if each.trees < each.channels:
                verdict = f"rings and {each.trees} trees follow the order" if each.trees else "rings follow the order"
                unknown = f"; NCCL did not say in whole lines which {each.channels - each.trees} trees it built"
            yield f"NCCL: {len(each.ranks)} ranks, {each.channels} channels: {verdict}{unknown}"
    for collective in dict.fromkeys(each.collective for each in proof.choices):
        taken: list[tuple[str, int]] = []
        of_size = defaultdict[int, dict[str, None]](dict)  # communicators may choose differently
        for choice in proof.choices:
            if choice.collective == collective:
                of_size[choice.size_bytes][f"{choice.algorithm.lower()}/{choice.protocol.lower()}"] = None
        for size, names in of_size.items():
            name = " or ".join(names)
            if not taken or taken[-1][0] != name:
                taken.append((name, size))
        yield f"NCCL: {collective}: " + ", ".join(f"{name} from {format_bytes(start)}" for name, start in taken)


def check_environment(env: Mapping[str, str]) -> None:
    """Refuse variables that keep NCCL's lines from plink.

    :raises UsageError: for the first of them.
    """
    if "NCCL_DEBUG_FILE" in env:
        raise UsageError("--verify-nccl reads the lines that ranks print; omit NCCL_DEBUG_FILE")
    if (level := env.get("NCCL_DEBUG", "INFO").upper()) not in ("INFO", "TRACE"):
        raise UsageError(f"--verify-nccl needs NCCL_DEBUG=INFO or TRACE, not {level}")
