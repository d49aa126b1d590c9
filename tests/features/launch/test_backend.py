"""`plink launch --backend`: what it takes, what it refuses before anything runs."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import plink
from plink.errors import NoAnswer, UsageError
from plink.features.launch.backend import backend_for
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.runtime.allreduce.aggregation import TEXT, from_bytes
from solvers.schedules.catalogue import schedule_for
from tests.conftest import typed
from tests.features.order.test_interfaces import blueprint, network_of, on_rails, rated
from tests.networks import details_from

STAR = [(0, 0, 1, "reduce"), (0, 2, 1, "reduce"), (1, 1, 0, "copy"), (1, 1, 2, "copy")]


def write_schedule(folder: Path, transfers: list[tuple[int, int, int, str]], ranks: int = 3) -> str:
    """A schedule of one chunk."""
    rows = [{"round": t, "from": a, "to": b, "chunk": 0, "op": op} for t, a, b, op in transfers]
    document = {"schema": "plink.schedule/1", "algo": "star", "ranks": ranks, "chunks": 1, "transfers": rows}
    (folder / "star.json").write_text(json.dumps(document))
    return "star.json"


def local(folder: Path, backend: str, *words: str) -> tuple[int, str, str]:
    """Three ranks of this machine."""
    done = typed("launch", "--runner", "local", "--slots", "3", "--backend", backend, *words, "sums.py", cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("backend", "words", "message"),
    [
        ("rinf", (), "--backend rinf: did you mean ring?"),
        ("gloo", (), "--backend gloo: PyTorch's own does that; omit --backend"),
        ("auto", (), "--backend auto goes by a measured network, and one machine has none"),
        ("2lha", (), "flat"),
        ("hubs", (), "ring"),
        ("ring", ("--slots", "1"), "--backend needs two ranks or more"),
        ("phub", ("--autotune",), "--autotune moves masters between ranks: it needs --backend 2lha or flat"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    backend: str, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """In one line."""
    code, out, err = local(tmp_path, backend, *words)
    assert code in (2, 4)
    assert out == ""
    assert message in err.splitlines()[-1]
    assert len(err.splitlines()) == 1


def test_a_schedule_of_ones_own_is_proven(tmp_path: Path) -> None:
    """One that leaves somebody out, one of other ranks, one that is no all-reduce."""
    code, _, err = local(tmp_path, write_schedule(tmp_path, STAR[1:]))
    assert (code, "`plink schedule verify star.json` lists all" in err) == (2, True), err
    code, _, err = local(tmp_path, write_schedule(tmp_path, STAR, ranks=4))
    assert (code, "a schedule of 4 ranks, and the job has 3" in err) == (2, True), err
    (tmp_path / "half.json").write_text(json.dumps(schedule_for("ring", 3, collective="reduce-scatter").to_json()))
    code, _, err = local(tmp_path, "half.json")
    assert (code, "half.json: reduce-scatter was found, an all-reduce was expected" in err) == (2, True), err


@pytest.mark.parametrize(("algo", "backend"), [({"algo": "2lha"}, " --backend 2lha"), ({"algo": []}, "")])
def test_a_plan_is_no_schedule(algo: dict[str, object], backend: str, tmp_path: Path) -> None:
    """What is advised is not refused in its turn: of Gloo there is no backend."""
    (tmp_path / "plan.json").write_text(json.dumps({"schema": "plink.plan/1", **algo}))
    code, _, err = local(tmp_path, "plan.json")
    assert (code, err) == (2, f"plink: error: --backend plan.json: that is a plan; write --order plan.json{backend}\n")


@pytest.fixture
def racks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Eight hosts in two racks far apart, the network between them measured last."""
    names = [f"h{k}" for k in range(8)]
    rack = np.arange(8) % 2
    latency = np.where(rack[:, None] == rack[None, :], 40.0, 400.0) * ~np.eye(8, dtype=bool)
    hosts = Hosts(tuple(Host(name, name) for name in names))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".plink").mkdir()
    links = [
        {"members": names[k::2], "out_gbps": 1.0, "in_gbps": 1.0, "out_limited_by": "link", "in_limited_by": "link"}
        for k in range(2)
    ]
    gbps = np.ones((8, 8)) - np.eye(8)
    Network(hosts, latency, gbps, details_from({"shared_links": [{"groups": links}]})).write(
        tmp_path / ".plink" / "network.json"
    )
    return hosts


def test_each_backend_travels_with_the_job(racks: Hosts) -> None:
    """By an algorithm's name, by the network, by a schedule of one's own; tuned, with masters that can be moved."""
    write_schedule(Path(), [(0, k, 0, "reduce") for k in range(1, 8)] + [(1, 0, k, "copy") for k in range(1, 8)], 8)
    for backend, algo in (("ring", "ring"), ("2lha", "2lha"), ("hubs", "hubs"), ("star.json", "star")):
        made = backend_for(backend, racks, None)
        (entry,) = from_bytes(base64.b64decode(made.environment[TEXT])).classes
        assert (entry.algo, entry.schedule.ranks if entry.schedule else 0, made.masters) == (algo, 8, None)
    for backend in ("flat", "2lha"):
        masters = backend_for(backend, racks, None, every_s=0.5).masters
        assert masters is not None
        assert sorted(rank for group in masters.groups for rank in group) == list(range(8))
    with pytest.raises(UsageError, match="autotune-every"):
        backend_for("flat", racks, None, every_s=0.01)
    with pytest.raises(NoAnswer, match=r"network.json is of other hosts"):
        backend_for("2lha", Hosts((Host("x", "x"), Host("y", "y"))), None)


def test_auto_takes_what_is_cheapest_at_each_size(racks: Hosts) -> None:
    """Few rounds for what is small, few bytes between racks for the rest."""
    aggregation = from_bytes(base64.b64decode(backend_for("auto", racks, None).environment[TEXT]))
    assert len(aggregation.classes) >= 2
    assert len({entry.algo for entry in aggregation.classes}) == len(aggregation.classes)
    assert all(entry.schedule is not None or entry.algo == "gloo" for entry in aggregation.classes)
    small, large = aggregation.choose(100).schedule, aggregation.choose(1 << 30).schedule
    assert small is not None
    assert large is not None
    assert small.rounds < large.rounds


def test_auto_needs_bandwidths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round trips alone know no sizes; the option that it names is there."""
    hosts = Hosts(tuple(Host(name, name) for name in "abc"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".plink").mkdir()
    Network(hosts, 50.0 * ~np.eye(3, dtype=bool)).write(tmp_path / ".plink" / "network.json")
    with pytest.raises(NoAnswer) as error:
        backend_for("auto", hosts, None)
    options = typed("probe", "--help", cwd=tmp_path).stdout
    assert all(option in str(error.value) and option in options for option in ("--no-host-rates", "--bandwidth"))


def test_auto_takes_the_rates_of_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows of a probe without ``--bandwidth`` are enough."""
    flows = [{"from": a, "to": b, "gbps": 0.1, "both_ways": True} for a, b in ("ab", "bc", "ca")]
    hosts = Hosts(tuple(Host(name, name) for name in "abc"))
    network = Network(hosts, 50.0 * ~np.eye(3, dtype=bool), details=details_from({"host_flows": flows}))
    aggregation = from_bytes(
        base64.b64decode(backend_for("auto", measured(network, tmp_path, monkeypatch), None).environment[TEXT])
    )
    assert aggregation.choose(100_000_000).algo in ("ring", "flat", "halving-doubling", "2lha", "gloo")


def measured(network: Network, here: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.chdir(here)
    (here / ".plink").mkdir()
    network.write(here / ".plink" / "network.json")
    return network.hosts


def test_auto_takes_all_interfaces_of_a_bcube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BML by the digits; in an order that is none of them, what its costs say."""
    network = rated(network_of(blueprint(3, 2)))
    hosts = measured(network, tmp_path, monkeypatch)
    order = plink.reorder(network, plink.OrderRequest(algo="bml"))
    by_digits = Hosts(tuple(hosts.by_name()[name] for name in order.hosts))
    aggregation = from_bytes(base64.b64decode(backend_for("auto", by_digits, None).environment[TEXT]))
    entry = aggregation.choose(25_000_000)
    assert entry.algo == "bml"
    assert entry.schedule is not None
    assert entry.schedule.rounds == 4
    mixed = Hosts(tuple(by_digits.members[k] for k in (0, 5, 7, 2, 4, 8, 1, 3, 6)))
    other = from_bytes(base64.b64decode(backend_for("auto", mixed, None).environment[TEXT]))
    assert other.choose(25_000_000).schedule is None or other.choose(25_000_000).schedule.rounds != 4


def test_channels_of_a_job_use_all_rails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many channels on each; rings on all rails are one ring of all ranks."""
    hosts = measured(on_rails(rails=3), tmp_path, monkeypatch)
    backend = backend_for("multi-ring", hosts, None)
    aggregation = from_bytes(base64.b64decode(backend.environment[TEXT]))
    assert backend.rails == ("eth0", "eth1", "eth2")
    assert aggregation.channels % 3 == 0
    (entry,) = aggregation.classes
    assert entry.schedule is not None
    assert entry.schedule.rounds == 2 * (len(hosts) - 1)
    assert "3 rails" in capsys.readouterr().err
    assert backend_for("ring", Hosts(hosts.members[:3]), None).rails == backend.rails  # of some hosts, too
    others = tuple(replace(host, name=f"x{k}") for k, host in enumerate(hosts))
    assert backend_for("ring", Hosts(others), None).rails == ()


def test_bml_without_known_interfaces_runs_with_a_warning(
    racks: Hosts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of hosts that were never measured; of a BCube in another order that is told."""
    for hosts in (racks, Hosts(tuple(Host(f"x{k}", f"x{k}") for k in range(4)))):
        (entry,) = from_bytes(base64.b64decode(backend_for("bml", hosts, None).environment[TEXT])).classes
        assert entry.schedule is not None
        assert "bml gains by interfaces" in capsys.readouterr().err
    network = rated(network_of(blueprint(3, 2)))
    network.write(tmp_path / ".plink" / "network.json")
    backend_for("bml", Hosts(tuple(network.hosts.members[k] for k in (0, 5, 7, 2, 4, 8, 1, 3, 6))), None)
    assert "`plink reorder --algo bml` makes it" in capsys.readouterr().err
