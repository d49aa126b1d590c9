"""Groups of some of the ranks, as scripts make them: real processes, `new_group` and meshes."""

import json
import re
from pathlib import Path

import pytest

from plink.runtime.aggengine.aggregation import Aggregation, SizeClass, aggregation_to_json
from plink.schedule import Schedule
from solvers.schedules.catalogue import Options, schedule_for
from tests.runtime.aggengine.processes import run_ranks

# Random groups that overlap, each rank asking for its all-reduces, and waiting for them, in an order of its own.
RANDOM = """
import hashlib, json, random, sys, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=40))
rank, size = dist.get_rank(), dist.get_world_size()
same, own = random.Random(sys.argv[1]), random.Random(rank)
groups = []
for _ in range(8):
    members = same.sample(range(size), same.randint(1, size))
    groups.append((sorted(members), dist.new_group(members)))
groups.append((list(range(size)), dist.group.WORLD))
given = lambda key, who, n: torch.rand(n, generator=torch.Generator().manual_seed(key * 64 + who)) - 0.5
engines = [getattr(group, "_engine", None) is not None for members, group in groups if rank in members]
wrong, digests = [], {}
for step in range(8):
    chosen = [(k, same.choice([1, 7, 900, 40_000, 600_000])) for k in range(len(groups)) if same.random() < 0.6]
    mine = [(k, n) for k, n in chosen if rank in groups[k][0]]
    own.shuffle(mine)
    data = {k: given(step * 16 + k, rank, n) for k, n in mine}
    works = [(k, dist.all_reduce(data[k], group=groups[k][1], async_op=True)) for k, _ in mine]
    own.shuffle(works)
    for k, work in works:
        work.wait()
    for k, n in mine:
        exact = sum(given(step * 16 + k, who, n).double() for who in groups[k][0])
        if not torch.allclose(data[k].double(), exact, rtol=1e-5, atol=1e-6): wrong.append((step, k))
        digests[f"{step} {k}"] = hashlib.sha256(data[k].numpy().tobytes()).hexdigest()
    dist.barrier()
print(json.dumps({"wrong": wrong, "digests": digests, "engines": engines}))
dist.destroy_process_group()
"""

# Rows and columns of a mesh: data parallel along one, sharded and replicated along both, and by hand.
MESH = """
import json, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
row, column = mesh.get_group("shards"), mesh.get_group("replicas")
said = {"backends": [dist.get_backend(row), dist.get_backend(column)],
        "engines": [getattr(group, "_engine", None) is not None for group in (row, column)]}
x = torch.full((5000,), float(rank)); dist.all_reduce(x, group=row)
y = torch.full((5000,), float(rank)); dist.all_reduce(y, group=column)
said["sums"] = [x[-1].item(), y[-1].item()]
torch.manual_seed(1)
make = lambda: torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4))
def train(model, seed):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(5):
        optimizer.zero_grad()
        x, y = torch.randn(8, 32, generator=generator), torch.randint(0, 4, (8,), generator=generator)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
whole = lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p
weights = lambda model: torch.cat([whole(p).detach().flatten() for p in model.parameters()]).tolist()
model = make()
train(DistributedDataParallel(model, process_group=column, bucket_cap_mb=0.01), rank)
said["ddp"] = weights(model)
torch.manual_seed(2)
model = make()
train(fully_shard(model, mesh=mesh), rank)
said["fsdp"] = weights(model)
print(json.dumps(said))
dist.destroy_process_group()
"""

AGAIN = """
import json, os, threading, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, left = dist.get_rank(), []
for k in range(9):
    members = [[0, 1, 2], [1, 3], [0, 2, 3]][k % 3]
    group = dist.new_group(members)
    if rank in members:
        x = torch.full((30_000,), float(rank)); dist.all_reduce(x, group=group)
        assert x.unique().tolist() == [float(sum(members))], x
        dist.destroy_process_group(group)
    del group
    left.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
    dist.barrier()
print(json.dumps(left))
dist.destroy_process_group()
"""

LOST = """
import os, signal, sys, time, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank = dist.get_rank()
group = dist.new_group([4, 1, 3], timeout=timedelta(seconds=8))  # torch does not take the one of all
dist.new_group([0, 1])
if rank not in (1, 3, 4):
    time.sleep(60)  # rank 0 keeps the store
for step in range(10):
    size = 50_000
    if step == 2 and rank == 3:
        if sys.argv[1] == "dies": os._exit(9)
        if sys.argv[1] == "hangs": time.sleep(30); os._exit(9)
        size = 49_999
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(size), group=group)
    except RuntimeError as error:
        print(f"step {step}: after {time.monotonic() - began:.0f} s: {str(error).splitlines()[0]}", flush=True)
        os._exit(5)
"""


def two_levels(ranks: int) -> Schedule:
    """Even ones and odd ones."""
    return schedule_for("2lha", ranks, Options(groups=[list(range(0, ranks, 2)), list(range(1, ranks, 2))]))


def write(folder: Path, text: str, schedule: Schedule, smallest_bytes: int | None = 0) -> tuple[Path, dict[str, str]]:
    """The program and what its ranks are started with."""
    program, plan = folder / "program.py", folder / "plan.json"
    program.write_text(text)
    classes = (SizeClass(2000, "flat", schedule_for("flat", schedule.ranks)), SizeClass(None, schedule.algo, schedule))
    plan.write_text(json.dumps(aggregation_to_json(Aggregation(classes, smallest_bytes=smallest_bytes))))
    return program, {"PLINK_BACKEND": "on", "PLINK_PLAN": str(plan)}


@pytest.mark.parametrize(("ranks", "algo", "seed"), [(2, "ring", 1), (5, "2lha", 2), (8, "halving-doubling", 3)])
def test_groups_that_overlap_sum_up_side_by_side(ranks: int, algo: str, seed: int, tmp_path: Path) -> None:
    """The same on all members, bit for bit, and the sum to rounding; nobody waits for a rank that is at another group.
    Groups without rank 0, which alone was given the plan, go by it too."""
    schedule = two_levels(ranks) if algo == "2lha" else schedule_for(algo, ranks)
    program, env = write(tmp_path, RANDOM, schedule)
    ended = run_ranks(program, ranks, str(seed), **env)
    assert [end.code for end in ended] == [0] * ranks, [end.err[-500:] for end in ended]
    told = [json.loads(end.out) for end in ended]
    assert [one["wrong"] for one in told] == [[]] * ranks
    digests: dict[str, set[str]] = {}
    for one in told:
        for key, digest in one["digests"].items():
            digests.setdefault(key, set()).add(digest)
    assert len(digests) > 20
    assert all(len(same) == 1 for same in digests.values())
    assert sum(sum(one["engines"]) for one in told) > ranks
    assert f"plink: all-reduces of {ranks} ranks by" in ended[0].err
    assert not any("plink" in end.err for end in ended[1:])


def test_rows_and_columns_of_a_mesh_train(tmp_path: Path) -> None:
    """The weights of Gloo, to rounding, by DDP over one dimension and by FSDP over both."""
    torch = pytest.importorskip("torch")
    program, env = write(tmp_path, MESH, two_levels(4), None)
    theirs = [json.loads(end.out) for end in run_ranks(program, 4)]
    ended = run_ranks(program, 4, **env)
    assert [end.code for end in ended] == [0] * 4, [end.err[-800:] for end in ended]
    for rank, end in enumerate(ended):
        ours = json.loads(end.out)
        assert (ours["backends"], ours["engines"]) == (["plink"] * 2, [True] * 2)
        assert ours["sums"] == [2 * (rank - rank % 2) + 1, 2 * (rank % 2) + 2]
        for kind in ("ddp", "fsdp"):
            torch.testing.assert_close(torch.tensor(ours[kind]), torch.tensor(theirs[rank][kind]), rtol=1e-4, atol=1e-5)
    (said,) = re.findall(r"^plink: all-reduces of groups of 2 ranks by .*", ended[0].err, re.M)[:1]
    assert "2lha" in said or "flat" in said or "gloo" in said


def test_groups_that_are_destroyed_leave_nothing_behind(tmp_path: Path) -> None:
    """No connections and no threads, however often one is made."""
    program, env = write(tmp_path, AGAIN, two_levels(4))
    for end in run_ranks(program, 4, **env):
        assert end.code == 0, end.err
        (files, threads), *_, last = json.loads(end.out)[2:]
        assert abs(last[0] - files) <= 3
        assert abs(last[1] - threads) <= 2


@pytest.mark.parametrize(
    ("how", "said", "within_s"),
    [
        ("dies", "rank 3", 3),
        ("hangs", "was not done within 8 s: rank 3 did not take part", 13),
        ("differs", "rank 3: sum of 49999 x float32; ranks 1, 4: sum of 50000 x float32", 12),
    ],
)
def test_a_member_that_is_lost_is_named_as_the_job_numbers_it(
    how: str, said: str, within_s: int, tmp_path: Path
) -> None:
    """To the other members, within the time-out; the other ranks are not concerned."""
    program, env = write(tmp_path, LOST, two_levels(5))
    ended = run_ranks(program, 5, how, freezes=(0, 2, 3) if how != "differs" else (0, 2), **env)
    for rank in (1, 4):
        assert ended[rank].code == 5, ended[rank]
        found = re.fullmatch(r"step 2: after (\d+) s: (.*)", ended[rank].out.strip())
        assert found, ended[rank].out
        assert int(found[1]) <= within_s
        assert all(part in found[2] for part in said.split("; ")), found[2]
