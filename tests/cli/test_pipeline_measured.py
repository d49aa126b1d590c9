"""``plink pipeline plan --network`` as it is typed."""

import json
from pathlib import Path
from typing import Any

import pytest

from plink.model.pipeline.plan import read_pipeline
from tests.cli.files import listing, refuses
from tests.conftest import typed
from tests.docs.samples import write_samples
from tests.model.schemas import complaints


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile and networks of hosts a to f."""
    folder = tmp_path_factory.mktemp("measured")
    write_samples(folder)
    return folder


def run(here: Path, *words: str, code: int = 0) -> Any:
    done = typed("pipeline", "plan", "profile.json", *words, cwd=here)
    assert done.returncode == code, done.stderr
    return done


def test_comparison_for_people(here: Path) -> None:
    lines = run(here, "--network", "measured.json", "--compare").stdout.splitlines()
    assert lines[0].startswith("pipeline 6 on 6 hosts, data-parallel, 5 layers, minibatch 64: 56.6 ms a minibatch")
    assert lines[0].endswith("(bound 56 ms, gap 1%)")
    assert lines[1].split()[-1] == "memory"
    ways = {line.split("  ")[0]: line.split() for line in lines[6:]}
    assert list(ways) == ["data-parallel", "data-parallel, given order", "straight", "model-parallel"]
    assert ways["data-parallel"][1:5] == ["56.6", "ms", "1.00", "times"]
    assert ways["data-parallel, given order"][3:7] == ["69.2", "ms", "1.22", "times"]


def test_plan_is_of_the_network(here: Path) -> None:
    run(here, "--network", "measured.json", "--stages", "0-3x4,4-4x1", "-o", "stages.json")
    plan = read_pipeline(here / "stages.json")
    assert plan.label == "4-1"
    assert plan.network is not None
    assert complaints("pipeline", plan.to_json()) == []
    assert len(plan.idle) == 1
    assert plan.predicted.by == "simulator"
    done = typed(
        "pipeline", "simulate", "stages.json", "--profile", "profile.json", "--network", "measured.json", "--json",
        cwd=here,
    )  # fmt: skip
    assert json.loads(done.stdout)["minibatch_s"] == pytest.approx(plan.predicted.minibatch_s)


def test_hosts_file_names_who_may_be_used(here: Path) -> None:
    (here / "some.txt").write_text("c address=127.0.0.4\na address=127.0.0.2\n")
    run(here, "--network", "measured.json", "--hosts", "some.txt", "-o", "some.json")
    plan = read_pipeline(here / "some.json")
    assert set(plan.hosts.names) == {"a", "c"}
    assert plan.idle == ()
    (here / "others.txt").write_text("a\nz\n")
    done = run(here, "--network", "measured.json", "--hosts", "others.txt", code=2)
    assert "measured.json is of other hosts: it does not have z; probe these hosts" in done.stderr


def test_network_without_rates(here: Path) -> None:
    before = listing(here)
    done = run(here, "--network", "cloud.json", code=4)
    assert "cloud.json has no rates; `plink probe HOSTS --bandwidth` measures them, --gbps R assumes one" in done.stderr
    assert listing(here) == before
    assert run(here, "--network", "cloud.json", "--gbps", "2", "-o", "assumed.json").returncode == 0


@pytest.mark.extended
def test_memory_limits(here: Path) -> None:
    done = run(here, "--network", "measured.json", "--memory", "10MB", code=4)
    assert "nothing fits in memory: " in done.stderr
    assert "which has 10 MB" in done.stderr
    run(here, "--network", "measured.json", "--memory", "100MB", "--memory", "a=20MB", "-o", "small.json")
    assert "a" in read_pipeline(here / "small.json").idle


REFUSED = [
    (("--memory", "x"), "size"),
    (("--memory", "z=1GB"), "--memory z=...: there is no such host"),
    (("--memory", "1GB", "--memory", "2GB"), "--memory 2GB: a size for all hosts, or HOST=SIZE once for each host"),
    (("--levels", "2x3"), "--levels is for hosts that are alike; omit it with --network"),
    (("--gbps", "1,2"), "--gbps 1,2: with --network, one rate in Gbit/s"),
    (("--straight", "--all-workers"), "6 stages of one worker each need as many layers; the profile allows 5"),
    (("--stages", "0-3x6,4-4x1"), "--stages take 7 replicas, but there are 6 workers"),
    (("--stages", "0-3,4-4,5-5"), "--stages: the profile has layers 0 to 4, there is no layer 5"),
    (("--stages", "0-3x2,4-4x1", "--depth", "1,3"), "depth 1,3 of 2-1: deadlock: "),
    (("--depth", "deep"), "--depth deep: auto, noam, or minibatches in flight"),
    (("--kind", "2bw"), "--kind 2bw needs --microbatches"),
    (("--kind", "2bw", "--microbatches", "4", "--vertical-sync"), "--vertical-sync belongs to --kind 1f1b, not to 2bw"),
    (
        ("--kind", "data-parallel", "--depth", "7"),
        "--kind data-parallel has one minibatch in flight: leave --depth 7 out",
    ),
    (("--kind", "data-parallel", "--straight"), "--kind data-parallel is one stage"),
    (("--depth", "3,2,1"), "--depth 3,2,1: depths of 3 stages need --stages"),
    (("--depth", "000000001999"), "--depth 000000001999: auto, noam, or minibatches in flight"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_bad_requests(here: Path, words: tuple[str, ...], message: str) -> None:
    refuses(here, ["pipeline", "plan", "profile.json", "--network", "measured.json", *words], message)
