"""NCCL's lines, written here in the forms of its source from 2.8 to 2.28, against the order of a job."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plink.errors import UsageError
from plink.features.launch.nccl_proof import NcclLog, NcclProof, check_environment, proof_lines
from plink.model.hosts import Host, Hosts
from solvers.schedules.trees import nccl_tree_parents
from tests.conftest import typed


@dataclass
class Built:
    """A communicator as NCCL builds it: nodes in the order of their first ranks, or in ``nodes`` where it was told
    otherwise. ``members``: ranks of the job; ``name``: how its last line names it."""

    members: Sequence[int]
    host_of: Sequence[str]
    nodes: Sequence[str] | None = None
    name: str = "commId 0x71f2 "
    form: str = "2.28"
    channels: int = 2
    hidden: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of all ranks, ranks side by side."""
        hosts = [self.host_of[k] for k in self.members]
        nodes = list(self.nodes or dict.fromkeys(hosts))
        ring = [k for node in nodes for k, host in enumerate(hosts) if host == node]
        first = {node: hosts.index(node) for node in nodes}
        trees = nccl_tree_parents(len(nodes))
        n = len(ring)
        for rank, place in sorted((k, place) for place, k in enumerate(ring)):
            node = nodes.index(hosts[rank])
            up = []
            for channel in range(self.channels):
                parent = trees[channel % 2][node]
                above = first[nodes[parent]] if parent >= 0 else -1
                up.append(above if rank == first[hosts[rank]] else rank - 1)
            printed = []
            if rank == 0:
                for channel in range(self.channels):
                    text = f"Channel {channel:02}/{self.channels:02} : " + " ".join(f"{k:>3}" for k in ring)
                    printed.append(text if len(text) < 128 else text[:124] + "...")
            if "rings" not in self.hidden:
                before, after = ring[place - 1], ring[(place + 1) % n]
                printed += [f"Ring {c:02} : {before} -> {rank} -> {after}" for c in range(self.channels)]
            printed.append("Trees" + "".join(f" [{c}] -1/-1/-1->{rank}->{up[c]}" for c in range(self.channels)))
            function = "ncclCommInitRank " if self.form == "2.28" else ""
            printed.append(
                f"{function}comm 0x55d{rank} rank {rank} nranks {n} cudaDev 0 nvmlDev 0 busId 1b000 {self.name}- "
                "Init COMPLETE"
            )
            for text in printed:
                stamp = "[2026-11-29 01:02:03] " if self.form == "2.28" else ""
                yield self.members[rank], f"{stamp}{hosts[rank]}:4{rank}:5{rank} [0] NCCL INFO {text}"


def cluster(count: int, slots: int = 1) -> tuple[Hosts, list[str]]:
    hosts = Hosts(tuple(Host(f"n{k}", f"10.0.0.{k + 1}", slots) for k in range(count)))
    return hosts, [host.name for host in hosts for _ in range(slots)]


def proof_of(hosts: Hosts, lines: Iterator[tuple[int, str]] | list[tuple[int, str]]) -> NcclProof:
    log = NcclLog()
    assert all(log.take(rank, line) for rank, line in lines)
    return log.proof(hosts)


@pytest.mark.parametrize("form", ["2.28", "2.8"])
@pytest.mark.parametrize(("count", "slots"), [(2, 1), (3, 1), (5, 2), (16, 1), (16, 8)])
def test_a_job_in_its_order_is_proven(count: int, slots: int, form: str) -> None:
    hosts, host_of = cluster(count, slots)
    name = "commId 0x71f2 " if form == "2.28" else ""
    proof = proof_of(hosts, Built(range(count * slots), host_of, name=name, form=form).lines())
    (made,) = proof.communicators
    assert (proof.problems, made.ranks, made.channels) == ((), tuple(range(count * slots)), 2)


def test_a_ring_that_goes_another_way_is_named_by_host() -> None:
    hosts, host_of = cluster(4)
    proof = proof_of(hosts, Built(range(4), host_of, nodes=["n0", "n2", "n1", "n3"]).lines())
    assert any("ring 0: n0 sends to n2" in text and "n1" in text for text in proof.problems)
    assert all(name in " ".join(proof.problems) for name in ("n1 ", "n2 "))


def test_a_tree_that_goes_another_way_is_named_by_host() -> None:
    hosts, host_of = cluster(8)
    usual = list(Built(range(8), host_of).lines())
    lines = [(rank, re.sub(r"(Trees \[0\] \S+->5->)\d", r"\g<1>1", line)) for rank, line in usual]
    assert [text.partition(",")[0] for text in proof_of(hosts, lines).problems] == ["tree 0: n5 sends up to n1"]


def test_what_nccl_does_not_say_in_whole_is_not_proven() -> None:
    """NCCL's lines have 1,023 characters at most: a number that is cut is another one."""
    hosts, host_of = cluster(8, 2)
    whole = [*Built(range(16), host_of, channels=64).lines()]
    without = [(rank, line) for rank, line in whole if " Trees" not in line]
    cut = [(rank, line[:1023]) for rank, line in whole]
    older = [(rank, re.sub(r"-1/-1/-1->(\d+)->(-?\d+)", r"\2->\1->-1/-1/-1", line)) for rank, line in whole]
    trees = []
    for lines in (whole, cut, without, older):
        proof = proof_of(hosts, lines)
        (made,) = proof.communicators
        assert (made.problems, made.channels) == ((), 64)
        trees.append(made.trees)
        assert ("trees follow" in "".join(proof_lines(proof))) == (made.trees > 0)
    assert trees[0] >= 63
    assert 0 < trees[1] < 64
    assert trees[2:] == [0, 0]


def test_names_that_come_again_are_other_communicators() -> None:
    """Of two splits of one colour, NCCL 2.18 to 2.22, both have a verdict."""
    hosts, host_of = cluster(3)
    astray = [*Built(range(3), host_of, nodes=["n0", "n2", "n1"]).lines()]
    for lines in ([*astray, *Built(range(3), host_of).lines()], [*Built(range(3), host_of).lines(), *astray]):
        assert len(proof_of(hosts, lines).communicators) == 2
        assert proof_of(hosts, lines).problems


def test_what_a_program_prints_before_a_line_of_nccls_is_shown() -> None:
    line = "n0:40:50 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1"
    prefixes = (
        "",
        "[1,3]<stdout>:",
        "[2026-11-29 01:02:03] ",
        "2026-11-29 01:02:03 ",
        "\x1b[32m",
        "Nov 29 01:02:03 ",
        "n0: ",
    )
    assert all(NcclLog().take(0, prefix + line) for prefix in prefixes)
    for text in ("step 3: loss 0.41 ", "\x1b[32mstep 3 ", "100%|####| 3/3 [00:01<00:00] "):
        assert not NcclLog().take(0, text + line)


def test_communicators_may_choose_differently() -> None:
    log = NcclLog()
    for choice in ("1/2", "0/0", "9/9"):
        log.take(0, f"n0:40:50 [0] NCCL INFO 8388608 Bytes -> Algo {choice[0]} proto {choice[2]} time 1.0")
    (line,) = proof_lines(log.proof(cluster(1)[0]))
    assert all(name in line for name in ("ring/simple", "tree/ll", "9/9"))


def test_rings_are_read_from_rank_0_where_others_print_none_and_a_cut_line_proves_nothing() -> None:
    hosts, host_of = cluster(8)
    assert proof_of(hosts, Built(range(8), host_of, hidden={"rings"}).lines()).problems == ()
    hosts, host_of = cluster(64)
    assert proof_of(hosts, Built(range(64), host_of).lines()).problems == ()
    cut = proof_of(hosts, Built(range(64), host_of, hidden={"rings"}).lines())
    assert len(cut.problems) == 1


def test_each_communicator_of_a_program_has_its_own_verdict() -> None:
    """All ranks, two halves by ncclCommSplit, and a second split into the same halves, one of which goes astray."""
    hosts, host_of = cluster(6)
    split = "parent 0x55 splitCount 1 color {} key 0"
    lines = [*Built(range(6), host_of).lines()]
    for half in (range(3), range(3, 6)):
        lines += Built(half, host_of, name=split.format(half[0])).lines()
    astray = Built(range(3), host_of, nodes=["n0", "n2", "n1"], name=split.format(0).replace("1 ", "2 ", 1)).lines()
    proof = proof_of(hosts, [*lines, *astray])
    assert [(each.ranks, bool(each.problems)) for each in proof.communicators] == [
        ((0, 1, 2, 3, 4, 5), False), ((0, 1, 2), False), ((3, 4, 5), False), ((0, 1, 2), True),
    ]  # fmt: skip


def test_groups_of_one_split_that_share_a_name_stay_apart() -> None:
    """Before 2.18 nothing but the size names a communicator."""
    hosts, host_of = cluster(6)
    lines = [
        *Built(range(3), host_of, name="", form="2.8").lines(),
        *Built(range(3, 6), host_of, name="", form="2.8").lines(),
    ]
    proof = proof_of(hosts, lines)
    assert [(each.ranks, each.problems) for each in proof.communicators] == [((0, 1, 2), ()), ((3, 4, 5), ())]


def test_a_job_without_nccl_or_with_a_silent_rank_is_not_proven() -> None:
    hosts, host_of = cluster(3)
    assert len(NcclLog().proof(hosts).problems) == 1
    lines = [(rank, line) for rank, line in Built(range(3), host_of).lines() if rank != 1]
    assert "only 2" in proof_of(hosts, lines).problems[0]


def test_another_interface_than_measured_is_named() -> None:
    hosts, host_of = cluster(2)
    lines = [*Built(range(2), host_of).lines()]
    lines += [
        (0, "n0:40:50 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"),
        (1, "n1:41:51 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>"),
    ]
    proof = proof_of(hosts, lines)
    assert proof.networks["n0"] == "Socket [0]eth0:10.0.0.1<0>"
    (problem,) = proof.problems
    assert all(word in problem for word in ("n1: ", "docker0", "10.0.0.2"))


def test_choices_of_the_tuner_are_read_in_both_forms() -> None:
    log = NcclLog()
    log.take(0, "n0:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}")
    log.take(0, "n0:1:2 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}")
    log.take(0, "n0:1:2 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}")
    log.take(0, "n0:1:2 [0] NCCL INFO 33554432 Bytes -> Algo 1 proto 2 time 5231.000000")
    proof = log.proof(cluster(2)[0])
    read = {(each.size_bytes, each.algorithm, each.protocol, each.channels) for each in proof.choices}
    assert read == {(4096, "TREE", "LL", 2), (8192, "TREE", "LL", 2), (8388608, "RING", "SIMPLE", 4),
                    (33554432, "RING", "SIMPLE", None)}  # fmt: skip
    (line,) = [line for line in proof_lines(proof) if "AllReduce" in line]
    assert line.index("tree/ll") < line.index("ring/simple")
    assert line.count("tree/ll") == 1  # one stretch, not a line a size


def test_lines_of_the_program_and_warnings_stay_on_the_screen() -> None:
    log = NcclLog()
    assert not log.take(0, "epoch 3: loss 0.1")
    assert not log.take(0, "n0:1:2 [0] socket.cc:10 NCCL WARN connection refused")


@pytest.mark.parametrize("env", [{"NCCL_DEBUG_FILE": "/tmp/x"}, {"NCCL_DEBUG": "WARN"}])
def test_variables_that_hide_the_lines_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(env))):
        check_environment(env)
    check_environment({"NCCL_DEBUG": "trace", "NCCL_ALGO": "Ring"})


def test_the_verdict_is_the_exit_code_and_stays_with_the_run(tmp_path: Path) -> None:
    program = ["launch", "--runner", "local", "--slots", "2", "--verify-nccl", "true"]
    done = typed(*program, cwd=tmp_path)
    assert (done.returncode, "error:" in done.stderr) == (1, True)
    record = json.loads(typed("runs", "show", "last", "--json", cwd=tmp_path).stdout)
    assert (record["exit_code"], len(record["nccl"]["problems"])) == (1, 1)
    assert typed("runs", "rerun", "last", cwd=tmp_path).returncode == 1
