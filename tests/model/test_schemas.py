"""The published JSON Schemas against what the code really writes: accepted as it is, refused when broken."""

import itertools
import re
import sys

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from plink.model.codec import convert
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import MachineIdentity
from plink.model.storage import read_document
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from tests.child_hosts import ChildHosts
from tests.model.schemas import FOLDER, Document, complaints, described
from tests.runners.child_jobs import ChildJobs

# JSON lines: a schema is of a document, and their readers know each line.
LOGS = {"elastic-log/1", "autotune/1", "spot-journal/1"}


@pytest.fixture(scope="module")
def measured() -> Network:
    """What the probe's own code makes of samples; c answers nobody, but hears the others."""
    from plink.transport.addresses import host_identity
    from probes.agent.summary import summary
    from probes.measurements import Measurements

    measurements = Measurements(
        Hosts(tuple(Host(name, f"10.0.0.{i}", slots=2, user="ann") for i, name in enumerate("abc")))
    )
    measurements.add(method="stamp", count=4, seed=0, plan="all")
    for i, j in itertools.permutations(range(3), 2):
        samples = [] if j == 2 else [50_000 + 1000 * i, 52_500, 49_000, 51_125]
        result = {"sent": 4, "reflected": len(samples), "hops": 1, "clock": "kernel", **summary(samples)}
        measurements.record(i, j, "stamp", result)
    measurements.machines = [
        None,
        *(convert(MachineIdentity, {**host_identity(), "address": "10.0.0.1"}, "h") for _ in range(2)),
    ]
    network = measurements.network()
    latency = np.where(np.isnan(network.latency_us), network.latency_us.T, network.latency_us)
    return Network(network.hosts, latency, None, network.details)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """What launch prints of a job that ends well and of one that fails."""
    documents = {}
    for name, code in (("good", "print('done')"), ("failed", "import sys; print('why'); sys.exit(3)")):
        with ChildHosts() as connector:
            jobs = ChildJobs(connector, tmp_path_factory.mktemp(name))
            documents[name] = jobs.launch(jobs.job(sys.executable, "-c", code), slots=2).to_json()
    return documents


def test_a_schema_is_one_and_says_what_every_key_means() -> None:
    for path in FOLDER.iterdir():
        name, schema = path.name.partition(".")[0], read_document(path)
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert re.fullmatch(rf"plink\.{name}/\d+", schema["properties"]["schema"]["const"])
        assert set(schema["required"]) <= set(schema["properties"]), name
        assert schema["additionalProperties"] is True, name  # keys are only ever added
        undescribed = [key for key, about in schema["properties"].items() if not about.get("description")]
        assert undescribed == [], name


def test_every_document_of_the_source_has_a_schema() -> None:
    """And no schema is of what the source does not know any more."""
    sources = [
        path for room in ("plink", "probes", "runners", "solvers") for path in (FOLDER.parents[1] / room).rglob("*.py")
    ]
    names = {name for path in sources for name in re.findall(r'"plink\.([a-z-]+/\d+)"', path.read_text())}
    consts = [read_document(path)["properties"]["schema"]["const"] for path in FOLDER.iterdir()]
    assert names == {const.removeprefix("plink.") for const in consts} | LOGS


def test_a_measured_network(measured: Network) -> None:
    document = measured.to_json()
    assert complaints("network", document) == []
    unknown = set(document) - set(read_document(FOLDER / "network.schema.json")["properties"])
    assert unknown == set(), "written by the probe and not described"


@pytest.mark.parametrize("which", ["good", "failed"])
def test_a_run(which: str, runs: dict[str, Document]) -> None:
    document = runs[which]
    assert complaints("run", document) == []
    schema = read_document(FOLDER / "run.schema.json")
    assert set(schema["required"]) <= set(document) <= set(schema["properties"])
    assert (document["failure"] is None) == (which == "good")


def test_schedules() -> None:
    """Of every algorithm in every collective that it has, with options."""
    for name, entry in ALGORITHMS.items():
        for part in entry.collectives:
            sharded, servers = part not in ("reduce", "broadcast"), 2 if name == "phub-2l" else None
            schedule = schedule_for(name, 4, Options(groups=[[0, 2], [1, 3]], sharded=sharded, servers=servers), part)
            assert described("schedule", schedule.to_json()), f"{name}, {part}"
    assert described("schedule", schedule_for("ps", 4, Options(colocated=False)).to_json())


@pytest.mark.parametrize(
    ("name", "changes", "where"),
    [
        ("network", {"hosts": [{"name": "rm -rf"}]}, "$.hosts[0].name"),
        ("network", {"latency_us": [[0, "12"]]}, "$.latency_us[0][1]"),
        ("run", {"exit_code": "3"}, "$.exit_code"),
        ("run", {"failure": {"rank": 1}}, "$.failure"),
        ("schedule", {"collective": "reduce-scatter"}, "$"),  # without owners
        ("verification", {"valid": True}, "$.errors"),
    ],
)
def test_what_is_broken_is_refused(
    name: str, changes: Document, where: str, measured: Network, runs: dict[str, Document]
) -> None:
    good: dict[str, Document] = {
        "network": measured.to_json(),
        "run": runs["failed"],
        "schedule": schedule_for("tree", 3).to_json(),
        "verification": {"schema": "plink.verification/1", "valid": False, "errors": ["wrong"]},
    }
    assert complaints(name, good[name]) == []
    assert set(complaints(name, good[name] | changes)) == {where}
