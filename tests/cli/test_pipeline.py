"""``plink pipeline import``, ``plan``, ``show`` and ``verify`` as they are typed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plink.model.pipeline.plan import read_pipeline
from tests.cli.files import listing, refuses
from tests.conftest import typed
from tests.model.schemas import complaints

LAYERS = [
    ("f0", 0.082, 500_000, 4_000_000), ("f1", 0.082, 500_000, 2_000_000), ("f2", 0.082, 540_000, 1_000_000),
    ("f3", 0.083, 0, 166_000), ("head", 0.007, 12_860_000, 0),
]  # fmt: skip
GRAPH = """\
node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=0.0, parameter_size=0.000
node2 -- Conv2d(3, 64) -- forward_compute_time=10.0, backward_compute_time=20.0, activation_size=8.0, parameter_size=4
node3 -- Linear() -- forward_compute_time=10.0, backward_compute_time=20.0, activation_size=8.0, parameter_size=4000
\tnode1 -- node2
\tnode2 -- node3
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a profile shaped like VGG-16, and a graph of PipeDream's."""
    layers = [
        {"name": name, "forward_s": seconds / 3, "backward_s": seconds * 2 / 3, "parameter_bytes": weights,
         "crossing_bytes": crossing}
        for name, seconds, weights, crossing in LAYERS
    ]  # fmt: skip
    (tmp_path / "p.json").write_text(json.dumps({"schema": "plink.profile/1", "minibatch": 64, "layers": layers}))
    (tmp_path / "graph.txt").write_text(GRAPH)
    return tmp_path


def run(here: Path, *words: str, code: int = 0) -> Any:
    done = typed("pipeline", *words, cwd=here)
    assert done.returncode == code, done.stderr
    return done


def test_plan_for_people(here: Path) -> None:
    done = run(here, "plan", "p.json", "--hosts", "16", "--gbps", "0.2")
    assert done.stdout.splitlines() == [
        "pipeline 15-1 on 16 hosts, 1f1b, 5 layers, minibatch 64: 26 ms a minibatch, 2,466 items/s "
        "(bound 21.9 ms, gap 18%)",
        "stage  layers    hosts         depth  delay     update  compute  network   memory",
        "    0  0-3 f0    node-[00-14]      2      1  960 items  21.9 ms  8.11 ms  24.7 MB",
        "    1  4-4 head  node-15           1      0   64 items     7 ms  6.64 ms    31 MB",
        "limited by: all-reduce",
        "on the network: 50.1 kB an item",
        "compared       a minibatch  the plan's gain  delay       update  memory",
        "data-parallel      74.8 ms       2.88 times      0  1,024 items  -",
    ]
    assert done.stderr == "plink: plan -> .plink/pipeline.json\n"


def test_plan_then_show_then_verify(here: Path) -> None:
    run(here, "plan", "p.json", "--hosts", "4", "--gbps", "0.2", "--depth", "noam")
    shown = run(here, "show").stdout.splitlines()
    assert shown[-4] == "rank 0 stage 0: 0 3 (0) + 6 (3) + 9 (6) + 12 (9) + 15 (12) + 18 (15) ..."
    assert shown[-1].startswith("rank 3 stage 1: 0 (0) + 1 (1) + 2 (2) +")
    done = run(here, "verify", "--profile", "p.json")
    assert done.stdout == "correct: 3-1, 1f1b, 4 ranks, proven for any number of minibatches\n"
    done = run(here, "verify", "--minibatches", "25", "--json")
    document = json.loads(done.stdout)
    assert document == {"schema": "plink.pipeline-verification/1", "valid": True, "errors": [], "minibatches": 25}


def test_json_writes_no_file(here: Path) -> None:
    before = listing(here)
    done = run(here, "plan", "p.json", "--hosts", "4", "--gbps", "0.2", "--json")
    assert json.loads(done.stdout)["schema"] == "plink.pipeline/1"
    assert listing(here) == before


def test_hosts_file_levels_and_models(here: Path) -> None:
    (here / "hosts.txt").write_text("a slots=2\nb slots=2\n")
    run(here, "plan", "p.json", "--hosts", "hosts.txt", "--gbps", "0.2", "--all-workers", "-o", "plan.json")
    plan = read_pipeline(here / "plan.json")
    assert (plan.hosts.names, plan.ranks) == (["a", "b"], 4)
    for model in ("thesis", "contention"):
        words = ("--hosts", "16", "--levels", "4x4", "--gbps", "80,0.2", "--model", model, "-o", "plan.json")
        run(here, "plan", "p.json", *words)
        run(here, "verify", "plan.json")


PROGRAM = """\
import torch
from torch import nn
from plink.runtime.pipeline.app import PipelineApp

class Small(PipelineApp):
    minibatches = 10
    def __init__(self, width):
        self.width = width
    def model(self):
        return nn.Sequential(nn.Linear(8, self.width), nn.ReLU(), nn.Linear(self.width, 3))
    def batch(self, number):
        return (torch.ones(4, 8),), torch.zeros(4, dtype=torch.long)
    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)
    def optimiser(self, parameters, scale):
        return torch.optim.SGD(parameters, lr=0.1 * scale)

def make(arguments):
    return Small(int(arguments[1]))
"""


def test_profile_then_plan(here: Path) -> None:
    (here / "train.py").write_text(PROGRAM)
    done = run(here, "profile", "--minibatches", "3", "train.py", "--width", "16")
    assert done.stdout.startswith("3 layers, ")
    profile = json.loads((here / ".plink" / "profile.json").read_text())
    assert complaints("profile", profile) == []
    assert (profile["program"], profile["arguments"], profile["minibatch"]) == ("train.py", ["--width", "16"], 4)
    assert [layer["parameter_bytes"] for layer in profile["layers"]] == [(8 * 16 + 16) * 4, 0, (16 * 3 + 3) * 4]
    run(here, "plan", "--hosts", "2", "--gbps", "1")
    run(here, "verify", "--profile", ".plink/profile.json")
    assert "no.py: there is no such file" in run(here, "profile", "no.py", code=2).stderr


@pytest.mark.extended
def test_traced_model_with_evaluations_is_refused_when_it_is_profiled(here: Path) -> None:
    traced = (
        "\nclass Traced(nn.Sequential):\n    def forward(self, value):\n        return super().forward(value) * 2\n"
    )
    program = PROGRAM.replace("nn.Sequential(nn.Linear", "Traced(nn.Linear").replace("\nclass", f"{traced}\nclass", 1)
    program = program.replace("minibatches = 10", "minibatches, evaluate_every, evaluation_minibatches = 10, 5, 1")
    (here / "train.py").write_text(program)
    done = run(here, "profile", "--minibatches", "3", "train.py", "--width", "16", code=2)
    assert "evaluate_every: dropout and batch norm of a traced model always train" in done.stderr


def test_import_then_plan(here: Path) -> None:
    done = run(here, "import", "graph.txt", "--minibatch", "64")
    assert done.stdout == "2 layers, 60 ms a minibatch, 4 kB of parameters; longest: node2 Conv2d, 30 ms\n"
    assert done.stderr == "plink: profile -> .plink/profile.json\n"
    assert "pipeline 2 on 2 hosts, data-parallel, 2 layers" in run(here, "plan", "--hosts", "2", "--gbps", "1").stdout
    assert json.loads(run(here, "import", "graph.txt", "--json").stdout)["schema"] == "plink.profile/1"


PLAN = ("plan", "p.json", "--hosts", "4", "--gbps", "0.2")
THESIS = (*PLAN, "--model", "thesis")
GPIPE = (*PLAN, "--kind", "gpipe", "--microbatches", "8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "p.json"), "--hosts and --gbps are missing: plink pipeline plan --hosts 4 --gbps 10"),
        (("plan", "p.json", "--hosts", "4"), "--gbps is missing: "),
        (("plan", "p.json", "--gbps", "1"), "--hosts is missing: "),
        (("plan", "--hosts", "4", "--gbps", "1"), "no .plink/profile.json here yet: run `plink pipeline profile"),
        ((*PLAN, "--levels", "3x2"), "--gbps 0.2: one rate for each of 2 levels, innermost first"),
        (("plan", "p.json", "--hosts", "4", "--levels", "3x2", "--gbps", "1,1"), "--levels 3x2 are 6 workers, but the"),
        ((*PLAN, "--levels", "2,2"), "--levels 2,2: components of each level"),
        (("plan", "p.json", "--hosts", "4", "--gbps", "0"), "--gbps 0: it takes"),
        (("plan", "p.json", "--hosts", "0", "--gbps", "1"), "--hosts 0: expected 1 to 4096 hosts"),
        (("plan", "p.json", "--hosts", "no.txt", "--gbps", "1"), "no.txt"),
        ((*PLAN, "--stages", "0-3x3"), "--stages leave out layers 4 to 4"),
        ((*PLAN, "--stages", "0-3x4,4x1"), "--stages take 5 replicas, but there are 4 workers"),
        ((*PLAN, "--stages", "0-3x0,4x1"), "0-3x0 has no replicas"),
        ((*PLAN, "--stages", "0-9"), "there is no layer 9"),
        ((*PLAN, "--stages", "0-4", "--straight"), "--straight and --stages exclude each other"),
        (("plan", "p.json", "--hosts", "6", "--gbps", "1", "--straight", "--all-workers"), "6 stages of one"),
        ((*PLAN, "--straight", "--depth", "1,3,1,1"), "depth 1,3,1,1 of 1-1-1-1: deadlock: rank 0 in B 0 of stage 0"),
        ((*PLAN, "--depth", "0"), "--depth 0: auto, noam, or minibatches in flight"),
        ((*PLAN, "--rtt", "soon"), "'soon' is not a duration"),
        ((*PLAN, "--kind", "2bw"), "--kind 2bw needs --microbatches"),
        ((*PLAN, "--stages", "0-3x3,4x1", "--kind", "2bw", "--microbatches", "4"), "replicas 3-1 need a multiple"),
        ((*PLAN, "--kind", "2bw", "--microbatches", "3", "--depth", "2"), "below the depth of stage 0"),
        ((*GPIPE, "--depth", "3"), "--kind gpipe has all minibatches of an update in flight; omit --depth 3"),
        ((*GPIPE, "--straight", "--depth", "3,3,3,3"), "omit --depth 3,3,3,3"),
        ((*GPIPE, "--depth", "noam"), "omit --depth noam"),
        ((*PLAN, "-o", "p.json"), "p.json"),
        ((*PLAN, "--local-gbps", "10"), "--local-gbps is of slots that share a host; here every host has one slot"),
        ((*THESIS, "--seed", "1"), "--seed is not used with --model thesis; omit it"),
        ((*THESIS, "--stages", "0-4"), "--stages is not used with --model thesis; omit it"),
        ((*PLAN[:2], "--hosts", "4", "--gbps", "1", "--model", "ring"), "--model ring: choose one of contention"),
        (("import", "p.json"), "p.json: line 1: a node like"),
        (("verify",), "no .plink/pipeline.json here yet: run `plink pipeline plan` first"),
    ],
)  # fmt: skip
def test_refusals(here: Path, words: tuple[str, ...], message: str) -> None:
    refuses(here, ["pipeline", *words], message)


@pytest.fixture
def plan(here: Path) -> dict[str, Any]:
    run(here, *PLAN, "-o", "plan.json")
    document: dict[str, Any] = json.loads((here / "plan.json").read_text())
    return document


def test_edited_plan_is_refused_by_verify(here: Path, plan: dict[str, Any]) -> None:
    plan["stages"][0]["depth"] = 4
    (here / "plan.json").write_text(json.dumps(plan))
    assert (
        "stages[0].delay: 3 follows from kind, replicas and depths" in run(here, "verify", "plan.json", code=2).stderr
    )
    plan["stages"][0]["delay"] = 3
    plan["stages"][1] |= {"depth": 19, "delay": 18}
    (here / "plan.json").write_text(json.dumps(plan))
    done = run(here, "verify", "plan.json", code=2)
    assert done.stdout.startswith("deadlock: rank ")
    assert done.stderr == "plink: error: plan.json: its actions are not correct\n"


def test_bytes_of_another_profile_are_refused_by_verify(here: Path, plan: dict[str, Any]) -> None:
    plan["boundaries"][0]["forward_bytes"] = 7
    (here / "plan.json").write_text(json.dumps(plan))
    done = run(here, "verify", "plan.json", "--profile", "p.json", code=2)
    assert "plan.json: boundaries[0]: 7 and " in done.stderr


def test_own_actions_are_verified(here: Path, plan: dict[str, Any]) -> None:
    from plink.model.pipeline.actions import actions_of

    read = read_pipeline(here / "plan.json")
    plan["actions"] = [[str(a) for a in actions_of(read.shape, *read.place_of(rank), 12)] for rank in range(4)]
    (here / "plan.json").write_text(json.dumps(plan))
    assert "proven for 12 minibatches" in run(here, "verify", "plan.json").stdout
    plan["actions"][3].remove("1B7")
    (here / "plan.json").write_text(json.dumps(plan))
    done = run(here, "verify", "plan.json", "--json", code=2)
    assert json.loads(done.stdout)["errors"] == [
        "rank 3: UPDATE 7 of stage 1 precedes B 7, whose gradient belongs to it"
    ]


def test_plan_of_another_profile_is_refused(here: Path, plan: dict[str, Any]) -> None:
    profile = json.loads((here / "p.json").read_text())
    profile["layers"][0]["forward_s"] = 1.0
    (here / "other.json").write_text(json.dumps(profile))
    done = run(here, "verify", "plan.json", "--profile", "other.json", code=2)
    assert "plan.json: profile: the plan was made for sha256:" in done.stderr
    profile["layers"].pop(0)
    (here / "other.json").write_text(json.dumps(profile))
    done = run(here, "verify", "plan.json", "--profile", "other.json", code=2)
    assert "the plan ends with layer 4, the profile with 3" in done.stderr


@pytest.mark.extended
def test_ctrl_c_keeps_the_best_plan_so_far(here: Path) -> None:
    """A terminal sees the search; what was found is written and proven, and the exit code says that it was stopped."""
    reading, writing = os.openpty()
    options = "--hosts", "16", "--gbps", "0.2", "--max-moves", "100000000", "-o", "plan.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", "pipeline", "plan", "p.json", *options],
        cwd=here, stdout=subprocess.DEVNULL, stderr=writing, env={**os.environ, "TERM": "xterm"},
        # A shell without job control starts its background commands with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(writing)
    seen, sent = b"", False
    with contextlib.suppress(OSError):
        while part := os.read(reading, 4096):
            seen += part
            if not sent and b"planning" in seen:
                process.send_signal(signal.SIGINT)
                sent = True
    os.close(reading)
    assert process.wait(60) == 128 + signal.SIGINT, seen
    read_pipeline(here / "plan.json")
    run(here, "verify", "plan.json")
