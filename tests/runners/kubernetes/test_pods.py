"""What runs in pods, run for real: rank k is on the node of rank k wherever the scheduler put the pods."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from plink.model.hosts import Host, Hosts
from runners.job.execution_environment import rank_environment
from runners.job.placement import assign_ranks
from tests.runners.kubernetes.kubelet import Kubelet, ended
from tests.runners.kubernetes.written import job, written

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

TWO = Hosts((Host("node-b", "node-b", slots=2), Host("node-a", "node-a", slots=2)))
SHOW = 'echo "$PLINK_NODE $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK"'


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        pytest.param(("node-b", "node-a"), "job", marks=pytest.mark.quick),
        pytest.param(("node-a", "node-b"), "job", marks=pytest.mark.quick),
        (("node-a", "node-b"), "jobset"),
        (("node-a", "node-b"), "trainjob"),
    ],
)
def test_ranks_follow_the_node_and_not_the_index(nodes: tuple[str, str], kind: str, tmp_path: Path) -> None:
    with Kubelet(written(job("sh", "-c", SHOW), TWO, kind=kind), tmp_path) as kubelet:
        pods = dict(zip(nodes, kubelet.job(*nodes), strict=True))
    assert [pod.code for pod in pods.values()] == [0, 0], [pod.err for pod in pods.values()]
    assert sorted(pods["node-b"].lines) == ["[0] node-b 0 0 4 0", "[1] node-b 1 1 4 0"]
    assert sorted(pods["node-a"].lines) == ["[2] node-a 2 0 4 1", "[3] node-a 3 1 4 1"]


@pytest.mark.quick
def test_every_rank_is_proven_in_the_log_of_its_pod(tmp_path: Path) -> None:
    with Kubelet(written(job("true"), TWO), tmp_path) as kubelet:
        first, second = kubelet.job("node-a", "node-b")
    result = {line["rank"]: (line["host"], line["node"], line["pod"]) for pod in (first, second) for line in pod.proof}
    assert result == {0: ("node-b", "node-b", "pod-1"), 1: ("node-b", "node-b", "pod-1"),
                     2: ("node-a", "node-a", "pod-0"), 3: ("node-a", "node-a", "pod-0")}  # fmt: skip
    assert len({line["pid"] for pod in (first, second) for line in pod.proof}) == 4
    assert "4/4 ranks placed; starting " in first.err
    assert second.err == ""


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (("node-a", "node-a"), "are both on the node node-a; nothing was run"),
        (("elsewhere", "node-a"), "on the node elsewhere, which is not one of the job's nodes (node-b, node-a)"),
    ],
)
def test_a_broken_order_starts_nothing(nodes: tuple[str, str], expected: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with Kubelet(written(job("touch", str(ran)), TWO), tmp_path, wait_s=3.0) as kubelet:
        pods = kubelet.job(*nodes)
    assert [pod.code for pod in pods] == [125, 125]
    assert any(expected in pod.err for pod in pods)
    assert all(len(pod.err.splitlines()) == 1 for pod in pods), [pod.err for pod in pods]
    assert [pod.proof for pod in pods] == [[], []]
    assert not ran.exists()


def test_a_pod_that_never_comes_is_named(tmp_path: Path) -> None:
    with Kubelet(written(job("true"), TWO), tmp_path, wait_s=1.0) as kubelet:
        (pod,) = kubelet.job("node-b")
    assert pod.code == 125
    assert pod.err == "plink: 1 of 2 nodes have no pod that reports: node-a; nothing was run\n"


def test_pod_without_a_node_name_refuses(tmp_path: Path) -> None:
    with Kubelet(written(job("true"), TWO), tmp_path, wait_s=1.0) as kubelet:
        pod = ended(kubelet.start("Job", "pod-0", "", JOB_COMPLETION_INDEX="0"))
    assert pod.code == 125
    assert "does not know its node" in pod.err


def test_missing_program_in_the_image_is_reported_first(tmp_path: Path) -> None:
    with Kubelet(written(job("no-such-program"), TWO), tmp_path) as kubelet:
        pods = kubelet.job("node-b", "node-a")
    assert [pod.code for pod in pods] == [125, 125]
    assert pods[0].err == "plink: node-b: no such program: no-such-program; nothing was run\n"
    assert pods[1].err == "plink: node-a: no such program: no-such-program; nothing was run\n"


ODD = ["", "a b", "it's", '"', "\n", "two\nlines\n", "$HOME", "$(PLINK_NODE)", "$$(PLINK_NODE)", "$$", "$", "`id`",
       "$(", "1e3", "yes", "0x10", "-n", "--", "*", "ü\u2028\U0001f600", "\t", "#", "{}", "\\n", "\x7f"]  # fmt: skip


def test_arguments_and_environment_arrive_unchanged(tmp_path: Path) -> None:
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    item = Hosts((Host("node-a", "node-a"),))
    for odd in ("$(PLINK_NODE) 'a'\n\"b\" $$", "1e3"):
        with Kubelet(written(job(sys.executable, "-c", show, *ODD, env={"ODD": odd}), item), tmp_path) as kubelet:
            (pod,) = kubelet.job("node-a")
        assert json.loads(pod.lines[0]) == [ODD, odd], pod.err


def test_rank_environment_is_that_of_every_runner(tmp_path: Path) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    with Kubelet(written(job(sys.executable, "-c", show, env={"MINE": "x"}), TWO), tmp_path) as kubelet:
        pods = kubelet.job("node-a", "node-b")
    result = {}
    for line in (line for pod in pods for line in pod.lines):
        rank, _, document = line.partition(" ")
        result[int(rank.strip("[]"))] = json.loads(document)
    port = result[0]["MASTER_PORT"]
    for assignment in assign_ranks(TWO, {}):
        values = rank_environment(assignment, TWO.names.index(assignment.host), TWO, ("127.0.0.1", port))
        request = {**values, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo", "MINE": "x"}
        assert {name: result[assignment.rank].get(name) for name in request} == request


def test_the_first_rank_that_fails_ends_its_pod_with_its_code(tmp_path: Path) -> None:
    script = "if [ $RANK = 1 ]; then echo bad >&2; exit 7; fi; exec sleep 60"
    item = Hosts((Host("node-a", "node-a", slots=3),))
    began = time.monotonic()
    with Kubelet(written(job("sh", "-c", script), item), tmp_path) as kubelet:
        (pod,) = kubelet.job("node-a")
    assert pod.code == 7
    assert "[1] bad" in pod.err
    assert "plink: rank 1 ended with exit code 7" in pod.err
    assert time.monotonic() - began < 50


def test_a_pod_that_is_asked_to_end_hands_it_on(tmp_path: Path) -> None:
    """A first process hears SIGTERM only when it has a handler; Kubernetes sends that and, later, SIGKILL."""
    item = Hosts((Host("node-a", "node-a", slots=2),))
    script = "trap 'echo ended; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    with Kubelet(written(job("sh", "-c", script), item), tmp_path) as kubelet:
        process = kubelet.start("Job", "pod-0", "node-a", JOB_COMPLETION_INDEX="0")
        assert process.stdout is not None
        up = 0
        while up < 2:
            up += process.stdout.readline().endswith("up\n")
        process.send_signal(signal.SIGTERM)
        pod = ended(process)
    assert sorted(pod.lines) == ["[0] ended", "[1] ended"]
    assert pod.code == 0


@pytest.mark.parametrize("workers", [("node-a", "node-b"), ("node-b", "node-a")])
def test_a_pytorch_job_keeps_the_order_against_its_operator_s_numbers(workers: tuple[str, str], tmp_path: Path) -> None:
    """The operator numbers workers as it makes them; what it says of ranks is replaced."""
    hosts = Hosts(tuple(Host(name, name) for name in ("node-c", "node-a", "node-b")))
    show = 'echo "$PLINK_NODE $RANK $WORLD_SIZE $PET_NODE_RANK $PET_NNODES"'
    theirs = {"MASTER_ADDR": "x-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "PET_NNODES": "3"}
    with Kubelet(written(job("sh", "-c", show), hosts, kind="pytorchjob"), tmp_path) as kubelet:
        pods = [kubelet.start("Master", "x-master-0", "node-c", RANK="0", PET_NODE_RANK="0", **theirs)]
        for index, node in enumerate(workers):
            number = str(index + 1)
            pods.append(kubelet.start("Worker", f"x-worker-{index}", node, RANK=number, PET_NODE_RANK=number, **theirs))
        done = [ended(pod) for pod in pods]
    assert [pod.code for pod in done] == [0, 0, 0], [pod.err for pod in done]
    assert sorted(line for pod in done for line in pod.lines) == ["node-a 1 3 1 3", "node-b 2 3 2 3", "node-c 0 3 0 3"]
