"""The backend as scripts meet it: real processes, unmodified programs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plink.runtime.aggengine.aggregation import Aggregation, SizeClass, aggregation_to_json
from solvers.schedules.catalogue import Options, schedule_for
from tests.runtime.aggengine.processes import run_ranks

TRAIN = """
import json, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
dist.init_process_group("gloo")
kind = sys.argv[1]
if kind == "mlp":
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    shape = (64,)
elif kind == "convnet":
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                                torch.nn.Flatten(), torch.nn.Linear(256, 8))
    shape = (3, 12, 12)
else:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                                torch.nn.Flatten(), torch.nn.Linear(32 * 6, 8))
    shape = (6, 32)
wrapped = DistributedDataParallel(model, bucket_cap_mb=0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(20):
    x, y = torch.randn(8, *shape, generator=generator), torch.randint(0, 8, (8,), generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(wrapped(x), y).backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
print(json.dumps({"backend": dist.get_backend(), "weights": weights.tolist()}))
dist.destroy_process_group()
"""

# All that an unmodified program may ask of its group.
ALL = """
import json, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
said = {"backend": dist.get_backend(), "name": dist.group.WORLD.group_name}
x = torch.full((1000,), float(rank)); dist.all_reduce(x); said["all_reduce"] = x.unique().tolist()
x = torch.arange(24.).reshape(4, 6).t() + rank; dist.all_reduce(x); said["strided"] = x[1, 0].item()
x = torch.tensor(rank + 1); work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
work.wait(); said["async"] = [x.item(), work.is_completed()]
x = torch.full((5000,), rank + 1, dtype=torch.int32); dist.all_reduce(x, op=dist.ReduceOp.AVG)
said["avg"] = x[0].item()
x = torch.tensor([6 + rank]); dist.all_reduce(x, op=dist.ReduceOp.BAND); said["band"] = x.item()
x = torch.tensor([rank]); dist.broadcast(x, 2); said["broadcast"] = x.item()
xs = [torch.zeros(1) for _ in range(size)]; dist.all_gather(xs, torch.tensor([float(rank)]))
said["gather"] = [v.item() for v in xs]
x = torch.zeros(size); dist.all_gather_into_tensor(x, torch.tensor([float(rank)])); said["into"] = x.tolist()
x = torch.zeros(2); dist.reduce_scatter_tensor(x, torch.arange(8.)); said["into_scatter"] = x[0].item() - 8 * rank
x = torch.zeros(1); dist.reduce_scatter(x, [torch.tensor([float(k)]) for k in range(size)]); said["scatter"] = x.item()
x = torch.tensor([float(rank)]); dist.reduce(x, 1); said["reduce"] = x.item() if rank == 1 else None
from torch.distributed import _functional_collectives as functional
x = functional.all_reduce(torch.ones(7000), "sum", dist.group.WORLD); said["functional"] = (x + 0)[0].item()
mesh = dist.init_device_mesh("cpu", (size,)); said["mesh"] = mesh.get_group().size()
for op in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), (rank + 1) % size),
                                  dist.P2POp(dist.irecv, torch.zeros(1), (rank - 1) % size)]): op.wait()
x = torch.ones(1, dtype=torch.int16); dist.all_reduce(x); said["short"] = x.item()
objects = [None] * size; dist.all_gather_object(objects, {"rank": rank}); said["objects"] = [o["rank"] for o in objects]
for _ in range(300):  # Gloo's thread ends a work while the next is asked for
    dist.all_gather([torch.zeros(1) for _ in range(size)], torch.zeros(1))
dist.barrier()
if rank == 0: dist.send(torch.tensor([7.]), 3)
if rank == 3: x = torch.zeros(1); dist.recv(x, 0); said["recv"] = x.item()
pair = dist.new_group([1, 3]); whole = dist.new_group(list(range(size)))
if rank in (1, 3): x = torch.tensor([float(rank)]); dist.all_reduce(x, group=pair); said["pair"] = x.item()
x = torch.full((9000,), 1.); dist.all_reduce(x, group=whole); said["whole"] = x[-1].item()
said["groups"] = [dist.get_backend(whole), type(dist.distributed_c10d._get_default_group()).__name__]
print(json.dumps(said))
"""

DIES = """
import os, signal, sys, time, torch, torch.distributed as dist
from datetime import timedelta
how, lost = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
began = time.monotonic()
for step in range(100):
    began = time.monotonic()
    size = 100_000
    if step == 3 and dist.get_rank() == lost:
        if how == "dies": os._exit(9)
        if how == "hangs": time.sleep(25); os._exit(9)
        if how == "freezes": os.kill(os.getpid(), signal.SIGSTOP)
        size = 99_999
    try:
        if step % 2: dist.all_reduce(torch.ones(size))
        else: dist.all_reduce(torch.ones(size), async_op=True).wait()
    except RuntimeError as error:
        print(f"step {step}: after {time.monotonic() - began:.0f} s: {str(error).splitlines()[0]}", flush=True)
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as again:
            print(f"again: {str(again).splitlines()[0]}", flush=True)
        sys.exit(5)
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A two-level schedule of 4 ranks that is used at every size."""
    path = tmp_path / "plan.json"
    schedule = schedule_for("2lha", 4, Options(groups=[[0, 2], [1, 3]]))
    path.write_text(
        json.dumps(aggregation_to_json(Aggregation((SizeClass(None, "2lha", schedule),), smallest_bytes=0)))
    )
    return path


def write(tmp_path: Path, text: str) -> Path:
    """The program."""
    path = tmp_path / "program.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", ["mlp", "convnet", "transformer"])
def test_training_ends_with_the_same_weights(kind: str, tmp_path: Path, plan: Path) -> None:
    """20 steps of DDP of a script that says "gloo": within rounding what Gloo gives, the same on every rank."""
    torch = pytest.importorskip("torch")
    script = write(tmp_path, TRAIN)
    theirs = run_ranks(script, 4, kind)
    ours = run_ranks(script, 4, kind, PLINK_BACKEND="2lha", PLINK_PLAN=str(plan))
    assert [end.code for end in theirs + ours] == [0] * 8, ours
    told = [json.loads(end.out) for end in theirs + ours]
    assert [one["backend"] for one in told] == ["gloo"] * 4 + ["plink"] * 4
    assert all(one["weights"] == told[4]["weights"] for one in told[4:])
    torch.testing.assert_close(torch.tensor(told[4]["weights"]), torch.tensor(told[0]["weights"]), rtol=1e-4, atol=1e-5)
    assert "plink: all-reduces of 4 ranks by 2lha" in ours[0].err
    assert not any("plink" in end.err for end in ours[1:])


# As if Gloo in another order had been measured to be faster from 4,000 bytes on, or never.
RING = """
import json, sys, torch, torch.distributed as dist
from plink.runtime.aggengine import backend
tried = []
def found(other, present, gloo):
    for size in (10, 5000):
        for one in (other, present):
            x = torch.full((size,), 2.); one(x, dist.ReduceOp.SUM).wait(); tried.append(x.unique().tolist())
    return 4000 if sys.argv[1] == "faster" else backend.NEVER
backend.faster_from = found
dist.init_process_group("plink")
handed = []
if (aside := dist.group.WORLD._engine._ordered) is not None:
    before = aside.all_reduce
    aside.all_reduce = lambda data, op: (handed.append(data.nbytes), before(data, op))[1]
sums = []
for size in (1, 999, 1000, 50_000):
    for asynchronous in (False, True):
        x = torch.full((size,), float(dist.get_rank())); work = dist.all_reduce(x, async_op=asynchronous)
        if asynchronous: work.wait()
        sums.append(x.unique().tolist())
part = dist.new_group([0, 1, 3])
if dist.get_rank() != 2: x = torch.ones(50_000); dist.all_reduce(x, group=part); sums.append(x.unique().tolist())
print(json.dumps([tried, handed, sums]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["faster", "slower"])
def test_gloo_in_the_order_of_the_plan_does_what_it_does_sooner(how: str, tmp_path: Path) -> None:
    """It is tried for the group of all, and has what is large enough where it was faster; all sums are the same."""
    schedule = schedule_for("2lha", 4, Options(groups=[[0, 2], [1, 3]]))
    plan = tmp_path / "plan.json"
    made = Aggregation((SizeClass(4999, "gloo", None), SizeClass(None, "2lha", schedule)), ring=(0, 2, 1, 3))
    plan.write_text(json.dumps(aggregation_to_json(made)))
    ended = run_ranks(write(tmp_path, RING), 4, how, PLINK_PLAN=str(plan))
    assert [end.code for end in ended] == [0] * 4, ended
    for rank, end in enumerate(ended):
        tried, handed, sums = json.loads(end.out)
        assert tried == [[8.0]] * 4
        assert handed == ([4000, 4000, 200_000, 200_000] if how == "faster" else [])
        assert sums == [[6.0]] * 8 + ([[3.0]] if rank != 2 else [])
    said = ended[0].err.splitlines()[0]  # which is used below that was measured
    assert ("from 4000 bytes on" in said and "in the plan's order" in said) == (how == "faster")


def test_everything_else_works_as_under_gloo(tmp_path: Path, plan: Path) -> None:
    """Other collectives, other groups, other types, strided tensors."""
    ended = run_ranks(write(tmp_path, ALL), 4, PLINK_BACKEND="on", PLINK_PLAN=str(plan))
    assert [end.code for end in ended] == [0] * 4, ended
    for rank, end in enumerate(ended):
        said = json.loads(end.out)
        assert said.pop("recv", None) == (7.0 if rank == 3 else None)
        assert said.pop("pair", None) == (4.0 if rank in (1, 3) else None)
        assert said.pop("reduce") == (6.0 if rank == 1 else None)
        assert said == {
            "backend": "plink", "name": said["name"], "all_reduce": [6.0], "strided": 10.0, "async": [4, True],
            "avg": 2, "band": 0, "broadcast": 2, "gather": [0.0, 1.0, 2.0, 3.0],
            "into_scatter": 0.0, "functional": 4.0, "mesh": 4, "short": 4, "into": [0.0, 1.0, 2.0, 3.0],
            "scatter": 4.0 * rank, "objects": [0, 1, 2, 3], "whole": 4.0,
            "groups": ["plink", "PlinkProcessGroup"],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("how", "lost", "said", "within_s"),
    [
        ("dies", 2, "rank 2", 3),
        ("hangs", 2, "was not done within 10 s: rank 2 did not take part", 15),
        ("freezes", 0, "", 18),  # the rank that keeps the store: nobody can say more than that it does not come
        ("differs", 1, "rank 1: sum of 99999 x float32; ranks 0, 2, 3: sum of 100000 x float32", 12),
    ],
)
def test_what_is_lost_ends_all_others_with_its_name(
    how: str, lost: int, said: str, within_s: int, tmp_path: Path, plan: Path
) -> None:
    """At once when it dies; after the group's time-out when it hangs. Then the program ends as it wants to."""
    settings = {"PLINK_BACKEND": "2lha", "PLINK_PLAN": str(plan)}
    ended = run_ranks(write(tmp_path, DIES), 4, how, str(lost), patience_s=90, freezes=(lost,), **settings)
    for rank in {0, 1, 2, 3} - ({lost} if how != "differs" else set()):
        assert ended[rank].code == 5, ended[rank]
        first, again = ended[rank].out.splitlines()
        found = re.fullmatch(r"step 3: after (\d+) s: (.*)", first)
        assert found, first
        assert int(found[1]) <= within_s
        assert said in found[2] if how != "differs" else all(part in found[2] for part in said.split("; "))
        assert again.startswith("again: ")


def test_a_plan_that_cannot_be_read_is_an_error_on_every_rank(tmp_path: Path) -> None:
    """Named, and nobody waits."""
    script = write(tmp_path, "import torch.distributed as dist\ndist.init_process_group('plink')\n")
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "plink.plan/2"}')
    for end in run_ranks(script, 2, PLINK_PLAN=str(bad)):
        assert end.code == 1
        assert f"{bad}: schema" in end.err.splitlines()[-1]


def test_a_plan_for_other_ranks_is_left_aside(tmp_path: Path, plan: Path) -> None:
    """The group is a Gloo group then."""
    text = "import torch, torch.distributed as dist\ndist.init_process_group('plink')\nx = torch.ones(1)\n"
    script = write(tmp_path, text + "dist.all_reduce(x)\nprint(x.item())\n")
    ended = run_ranks(script, 3, PLINK_PLAN=str(plan))
    assert [end.out for end in ended] == ["3.0\n"] * 3
    assert "the plan is for 4 ranks" in ended[0].err


@pytest.mark.parametrize("wrong", ["0", "text", "AAAA"])
def test_import_torch_never_fails(wrong: str, tmp_path: Path) -> None:
    """Whatever the variables hold; and nothing is imported that is not needed."""
    code = (
        "import sys, torch\nprint([n for n in sys.modules if n.startswith('plink.runtime.agg') or n == 'plink.plan'])"
    )
    end = subprocess.run(
        [sys.executable, "-c", code], env={"PLINK_BACKEND": wrong, "PLINK_AGGREGATION": wrong, "PLINK_PLAN": wrong},
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert (end.stdout, end.stderr) == ("[]\n", "")
