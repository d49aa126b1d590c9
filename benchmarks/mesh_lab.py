"""Orders for meshes in a lab of 4 racks of 4 hosts: a step's traffic in the given order, sorted by rack, and plink's.

Real hosts run the traffic itself by Gloo (`plink compare --mesh-file`); gains and seconds by traffic are beside those
predicted. Racks' uplinks carry what one host sends. Needs root, eight minutes.
"""

import json
import sys
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.hosts import Hosts, read_hosts, render_hosts

_MESHES = {
    "pp4 dp4": ("pp=4,dp=4", ["pp=p2p:1MB*8", "dp=all-reduce:6MB"]),
    "dp4 ep4": ("dp=4,ep=4", ["ep=all-to-all:1MB*8", "dp=all-reduce:6MB"]),
}
_PAIRS = "2"


def _run(bench: BenchLab, *words: str) -> None:
    done = bench.plink(*words)
    if done.code:
        raise SystemExit(f"plink {' '.join(words)}: {done.stderr}")


def _measured(bench: BenchLab, mesh: str, traffic: list[str]) -> dict[str, Any]:
    """Return gains over both orders with intervals and predictions, and seconds by traffic."""
    (bench.folder / "job.json").write_text(json.dumps({"schema": "plink.mesh/1", "mesh": mesh, "traffic": traffic}))
    _run(bench, "reorder", "--mesh-file", "job.json", "--force", "--seed", "1")
    order = json.loads((bench.folder / ".plink" / "order.json").read_text())
    result: dict[str, Any] = {"traffic": []}
    for name, hosts, key in (("given", "hosts.txt", "given"), ("sorted by rack", "sorted.txt", "sorted_by_group")):
        _run(bench, "compare", "--hosts", hosts, "--mesh-file", "job.json", "--pairs", _PAIRS)
        compared = json.loads((bench.folder / ".plink" / "compare.json").read_text())
        result[name] = {
            "gain": compared["gain"],
            "interval": compared["interval"],
            "predicted_gain": round(order["baseline"][key] / order["cost"], 4),
        }
        for row, costs in zip(compared["traffic"], order["cost_by_traffic"], strict=True):
            other_us = costs["baseline" if key == "given" else key]
            pairs = ((name, row["given_s"], other_us), ("plink", row["plink_s"], costs["cost"]))
            result["traffic"] += [
                {"order": which, "traffic": row["traffic"], "seconds": round(s, 4), "predicted_s": round(us / 1e6, 4)}
                for which, s, us in pairs
            ]
    return result


def main() -> int:
    """Measure both meshes and record them; 1 when a bar was missed."""
    figures: dict[str, Any] = {}
    with lab("--racks", "4", "--hosts-per-rack", "4", "--seed", "3") as bench:
        bench.use_reno()
        hosts = read_hosts(bench.hosts_file)
        (bench.folder / "hosts.txt").write_text(render_hosts(hosts))
        rack_of = dict(zip(bench.names, bench.racks.tolist(), strict=True))
        by_rack = Hosts(tuple(sorted(hosts.members, key=lambda host: rack_of[host.name])), hosts.lab)
        (bench.folder / "sorted.txt").write_text(render_hosts(by_rack))
        _run(bench, "probe", "hosts.txt", "--count", "500")
        for name, (mesh, traffic) in _MESHES.items():
            figures[name] = _measured(bench, mesh, traffic)
            print(name, json.dumps(figures[name]), flush=True)
    errors = [abs(row["seconds"] / row["predicted_s"] - 1) for each in figures.values() for row in each["traffic"]]
    bars = [
        Bar(f"{name}, gain over the given order", each["given"]["gain"], at_least=1.3) for name, each in figures.items()
    ]
    bars.append(Bar("largest error of a traffic's predicted time", round(max(errors), 3), at_most=0.15))
    return record("mesh-lab", {"racks": 4, "hosts": 16, "pairs": int(_PAIRS), "meshes": _MESHES}, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
