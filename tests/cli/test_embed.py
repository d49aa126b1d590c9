"""``plink embed`` and ``--smooth-latencies``: what they print and leave, and what they refuse, in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.clouds import Cloud, three_tier
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, read_network
from tests.cli.files import refuses, write
from tests.conftest import typed
from tests.networks import details_from

N = 16
QUICK = ("--dimension", "4", "--alpha", "1", "--loss", "relative", "--no-heights")
SEARCH = ("--max-moves", "2000", "--force", "--json")


def cloud() -> Cloud:
    return three_tier(N, 3, "powers", noise_sigma=0.0, sample_sigma=0.8)


def network_of(*halves: np.ndarray, **details: Any) -> Network:
    hosts = Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(len(halves[0]))))
    rtt = np.sqrt(halves[0] * halves[-1])
    np.fill_diagonal(rtt, 0.0)
    return Network(
        hosts,
        rtt,
        None,
        details_from({"halves_us": [half.tolist() for half in halves]} if len(halves) == 2 else details),
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A noisy cloud with halves; one in which h0 and h1 saw nobody; three hosts; two parts."""
    rng = np.random.default_rng(5)
    noisy = cloud()
    network_of(*(noisy.sample(rng) for _ in range(2))).write(tmp_path / "noisy.json")
    lonely = noisy.sample(rng)
    lonely[:2] = lonely[:, :2] = np.nan
    network_of(lonely).write(tmp_path / "lonely.json")
    network_of(noisy.sample(rng)[:3, :3]).write(tmp_path / "three.json")
    parts = noisy.sample(rng)
    parts[:5, 5:] = parts[5:, :5] = np.nan
    network_of(parts).write(tmp_path / "parts.json")
    (tmp_path / ".plink").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_embedding_is_written_and_reported(here: Path) -> None:
    done = typed("embed", "noisy.json", cwd=here)
    assert (done.returncode, done.stderr) == (0, "plink: embedding -> .plink/embedding.json\n")
    first, second, third, last = done.stdout.splitlines()
    assert first.startswith("16 hosts in ")
    assert first.endswith(" settings)")
    assert " off; " in second
    assert third.startswith("farthest from the fit: h")
    assert last.startswith("validated by the halves of the samples: fitted distances are ")
    document = json.loads((here / ".plink/embedding.json").read_text())
    verdict = document["verdict"]
    ends = {
        "helps": "--smooth-latencies helps",
        "hurts": "--smooth-latencies hurts, omit --smooth-latencies",
        "no difference": "no difference",
    }
    assert last.endswith(f"(120 pairs): {ends[verdict['word']]}")
    assert f"{verdict['fitted_error']:.1%} off, measured {verdict['raw_error']:.1%}" in last
    assert document["network"] == read_network(here / "noisy.json").fingerprint()
    assert len(document["coordinates"]) == len(document["fitted_us"]) == len(document["hosts"]) == N
    assert {len(row) for row in document["coordinates"]} == {document["dimension"]}


def test_options_are_kept_and_a_seed_reproduces_the_result(here: Path) -> None:
    runs = [typed("embed", "noisy.json", *QUICK, "--seed", seed, "--json", cwd=here).stdout for seed in "112"]
    assert runs[0] == runs[1] != runs[2]
    document = json.loads(runs[0])
    assert (document["dimension"], document["alpha"], document["loss"], document["heights"]) == (
        4,
        1.0,
        "relative",
        False,
    )
    assert (document["settings_tried"], set(document["heights_us"])) == (1, {0.0})
    assert not list((here / ".plink").iterdir())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["noisy.json", "--alpha", "0.5"], 2, "alpha 0.5: it takes 1 to 2"),
        (["noisy.json", "--dimension", "0"], 2, "dimension 0: it takes 1 to 64"),
        (["noisy.json", "--loss", "huber"], 2, "--loss huber: choose one of auto, relative, absolute"),
        (["noisy.json", "--device", "abacus"], 2, "device 'abacus': PyTorch cannot use it here"),
        (["three.json"], 4, "an embedding takes 4 hosts"),
        (["parts.json"], 4, "2 parts with nothing measured between them; one is h0, h1, h2, h3, h4"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], code: int, message: str, here: Path) -> None:
    refuses(here, ["embed", *words], message, code)


def test_an_order_rests_on_fitted_distances_of_one_half(here: Path) -> None:
    done = typed("reorder", "noisy.json", "--smooth-latencies", *SEARCH, cwd=here)
    assert done.returncode == 0
    assert "validated by the halves" in done.stderr
    order = json.loads(done.stdout)
    assert order["smoothing"]["verdict"]["raw_error"] > order["smoothing"]["verdict"]["fitted_error"]
    assert order["network"] == read_network(here / "noisy.json").fingerprint()
    assert order["validation"]["gain"] > 0.2
    plain = json.loads(typed("reorder", "noisy.json", *SEARCH, cwd=here).stdout)
    assert "smoothing" not in plain
    assert plain["cost"] != order["cost"]
    # What holds the order to account was not looked at: another second half leaves the saving of the fitted half.
    document = json.loads((here / "noisy.json").read_text())
    other_half = cloud().sample(np.random.default_rng(9))
    document["halves_us"][1] = other_half.tolist()
    document["latency_us"] = np.sqrt(np.array(document["halves_us"][0]) * other_half).tolist()
    write(here / "other.json", document)
    other = json.loads(typed("reorder", "other.json", "--smooth-latencies", *SEARCH, cwd=here).stdout)
    assert other["validation"]["predicted"] == order["validation"]["predicted"]
    assert other["validation"]["gain"] != order["validation"]["gain"]


@pytest.mark.extended
def test_costs_of_fitted_distances(here: Path) -> None:
    fitted = json.loads(typed("embed", "noisy.json", "--json", cwd=here).stdout)["fitted_us"]
    write(here / "fitted.json", {"schema": "plink.network/1", "hosts": [{"name": f"h{i}"} for i in range(N)],
                                 "latency_us": fitted})  # fmt: skip
    costs = [
        json.loads(typed("cost", *words, "--model", "latency", "--json", cwd=here).stdout)["cost_us"]
        for words in (("noisy.json", "--smooth-latencies"), ("fitted.json",), ("noisy.json",))
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)
    assert costs[0] != pytest.approx(costs[2], rel=1e-2)


def test_fitted_distances_replace_unmeasured_pairs(here: Path) -> None:
    document = json.loads((here / "noisy.json").read_text())
    del document["halves_us"]
    for k in range(N):
        document["latency_us"][k][k - 1] = document["latency_us"][k - 1][k] = None
    write(here / "holes.json", document)
    assert typed("cost", "holes.json", "--model", "latency", "--random", "0", cwd=here).returncode == 4
    assert typed("cost", "holes.json", "--model", "latency", "--smooth-latencies", "--json", cwd=here).returncode == 0
    words = ("advise", "holes.json", "--smooth-latencies", "--algos", "ring,flat", "--json")
    assert typed(*words, cwd=here).returncode == 0
