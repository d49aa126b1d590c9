"""Files that pages speak of without showing them, made the same every time: networks of six hosts in two racks handed
out mixed (as orders.md has them), a hosts file and a topology file of these, an order, orders that were run, somebody's
schedule."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from plink.features.pipeline.plan import plan_pipeline
from plink.features.pipeline.request import PipelineRequest
from plink.model.hosts import read_hosts
from plink.model.pipeline.exports import profile_from_graph
from plink.model.pipeline.plan import PipelinePlan
from tests.runtime.pipeline.apps import plan_of

EXAMPLES = Path(__file__).parents[2] / "examples"
_RACKS = ("ace", "bdf")
_ROWS = (
    (0, 81, 22, 79, 25, 84),
    (81, 0, 83, 21, 80, 24),
    (22, 83, 0, 78, 20, 82),
    (79, 21, 78, 0, 85, 23),
    (25, 80, 20, 85, 0, 86),
    (84, 24, 82, 23, 86, 0),
)


def write_samples(folder: Path) -> None:
    """Put all of them into a folder."""
    names = "abcdef"
    rows: list[list[float | None]] = [[*row] for row in _ROWS]
    _write(folder / "cloud.json", _network(names, rows))
    shared = {"out_gbps": 2.0, "in_gbps": 2.0}
    links = [{"confidence": 1.0, "groups": [{"members": list(rack), **shared} for rack in _RACKS]}]
    _write(folder / "measured.json", _network(names, rows) | {"shared_links": links})
    part = [[*row] for row in rows]
    for other in (2, 3):
        part[0][other] = part[other][0] = None
    _write(folder / "part.json", _network(names, part))
    partly = [[*row] for row in rows]
    for other in (2, 3, 4, 5):
        partly[0][other] = partly[other][0] = None
    _write(folder / "partly.json", _network(names, partly))
    _write(folder / "yesterday.json", _network(names, rows))
    _write(folder / "today.json", _network(names, rows))
    _write(folder / "check.json", _checked())
    _write(folder / "alike.json", _drawn(8, racks=1, sigma=0.2))
    _write(folder / "cloud64.json", _drawn(64, racks=8, sigma=0.05))
    _write(folder / "order.json", {"schema": "plink.order/1", "algo": "ring", "hosts": list("acebfd")})
    _write(folder / "mine.json", _star(4))
    hosts = [f"{name} address=127.0.0.{k}" for k, name in enumerate(names, start=2)]  # nothing leaves this machine
    (folder / "hosts.txt").write_text("\n".join(hosts) + "\n")
    (folder / "topology.conf").write_text(
        "SwitchName=spine Switches=leaf[1-2]\n"
        + "".join(f"SwitchName=leaf{k} Nodes={','.join(rack)}\n" for k, rack in enumerate(_RACKS, start=1))
    )
    _write_spot_samples(folder)
    (folder / "train.py").write_text('print("trained")\n')
    (folder / "graph.txt").write_text(_pipedream_graph())
    profile_from_graph(_pipedream_graph(), "graph.txt", 64).write(folder / "profile.json")
    plan_of([2, 1], 7).write(folder / "pipeline.json")
    _pipeline_of_hosts(folder).write(folder / "plan.json")
    shutil.copy(EXAMPLES / "pipeline_mlp.py", folder)


def _pipeline_of_hosts(folder: Path) -> PipelinePlan:
    """A plan of that profile for the six hosts."""
    request = PipelineRequest(hosts=read_hosts(folder / "hosts.txt").ranked(), gbps=(0.2,))
    return plan_pipeline(profile_from_graph(_pipedream_graph(), "graph.txt", 64), request)


def _pipedream_graph() -> str:
    """A profile of PipeDream's profiler: four layers that compute, and one with nearly all parameters."""
    costs = [(29, 53, 4e6, 5e5), (29, 53, 2e6, 5e5), (29, 53, 1e6, 6e5), (29, 54, 2e5, 0), (2, 5, 0, 1.3e7)]
    nodes = [
        f"node{k} -- Layer{k} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={activation}, parameter_size={parameters}\n"
        for k, (forward, backward, activation, parameters) in enumerate(costs)
    ]
    return "".join([*nodes, *(f"\tnode{k} -- node{k + 1}\n" for k in range(len(costs) - 1))])


def _write_spot_samples(folder: Path) -> None:
    """Put a market file, and prices for it, into a folder: ten days of two types in two zones."""
    from plink.model.spot.market_file import read_market_file
    from plink.model.spot.price_files import Histories
    from plink.model.spot.prices import Market
    from solvers.spot.made import KINDS, MadeMarket, make_prices

    (folder / "market.toml").write_text(MARKET_FILE)
    market_file = read_market_file(folder / "market.toml")
    markets = [
        MadeMarket(Market(zone, kind.name), KINDS[name], kind.on_demand)
        for zone in market_file.zones
        for kind, name in zip(market_file.types, ("c3-a", "g2-a"), strict=True)
    ]
    _write(folder / "prices.json", Histories(make_prices(markets, 10, 1, 1.7e9)).document().to_json())


MARKET_FILE = """\
billing = "hourly-2016"
zones = ["zone-a", "zone-b"]

[[types]]
name = "c4.xlarge"
cores = 4
on_demand = 0.199

[[types]]
name = "c4.2xlarge"
cores = 8
on_demand = 0.398

[anchors]
type = "c4.xlarge"
count = 3

[reference]
type = "c4.2xlarge"
count = 64

[limits]
max_cores = 768
"""


def _network(names: str, rows: list[list[float | None]]) -> dict[str, Any]:
    return {"schema": "plink.network/1", "hosts": [{"name": name} for name in names], "latency_us": rows}


def _checked() -> dict[str, Any]:
    """Four orders that were run: the more often the ring leaves a rack, the longer it took."""
    orders = (("acebdf", 0.2, 257), ("acbedf", 0.4, 369), ("abcdef", 0.6, 491), ("abedcf", 0.5, 490))
    runs = [
        {"order": hosts, "hosts": list(hosts), "predicted_us": cost, "achieved_s": [seconds, seconds + 0.01]}
        for hosts, seconds, cost in orders
    ]
    return {
        "schema": "plink.check/1",
        "checks": [{"algo": "gloo", "model": "latency", "size_bytes": 1e6, "runs": runs}],
    }


def _star(ranks: int) -> dict[str, Any]:
    """An all-reduce by hand: rank 0 adds up what all have and hands it back."""
    there = [{"round": 0, "from": rank, "to": 0, "chunk": 0, "op": "reduce"} for rank in range(1, ranks)]
    back = [{"round": 1, "from": 0, "to": rank, "chunk": 0, "op": "copy"} for rank in range(1, ranks)]
    return {"schema": "plink.schedule/1", "ranks": ranks, "chunks": 1, "transfers": there + back}


def _drawn(hosts: int, racks: int, sigma: float) -> dict[str, Any]:
    """Hosts in racks (25 us within, 80 across; 60 where there is one rack) with noise, two halves of samples."""
    draw = random.Random(1)
    halves = []
    for _ in range(2):
        half = [[0.0] * hosts for _ in range(hosts)]
        for i in range(hosts):
            for j in range(hosts):
                true = 60 if racks == 1 else 25 if i % racks == j % racks else 80
                half[i][j] = 0.0 if i == j else round(true * draw.lognormvariate(0, sigma), 1)
        halves.append(half)
    mean = [[round((x + y) / 2, 1) for x, y in zip(*rows, strict=True)] for rows in zip(*halves, strict=True)]
    members = [{"name": f"h{k:02}"} for k in range(hosts)]
    return {"schema": "plink.network/1", "hosts": members, "latency_us": mean, "halves_us": halves}


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document))
