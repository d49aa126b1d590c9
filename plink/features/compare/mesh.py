"""Comparison of two orders by a mesh's own traffic: the job sends what the groups of a training step send."""

import contextlib
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import plink.runtime.mesh_traffic as program
from plink.errors import UsageError
from plink.features.launch.request import JobRequest
from plink.features.launch.session import JobSetup
from plink.features.launch.setup import new_job
from plink.features.order.mesh import leaving
from plink.model.mesh import Mesh, labels, read_mesh
from plink.model.order import RankOrder, read_order
from plink.model.run import ComparedTraffic, OrderName
from plink.records import workspace
from plink.records.scratch import scratch_folder
from solvers.costs.mesh_patterns import weight_of

_REPEATS = 5  # of a run
_NAME = "mesh_traffic.py"
METRIC = "step_s"
ByTraffic = Callable[[Mapping[OrderName, Sequence[str]]], Sequence[ComparedTraffic]]


@contextlib.contextmanager
def mesh_job(options: JobRequest, mesh_file: Path) -> Iterator[tuple[JobSetup, ByTraffic]]:
    """Yield the job that sends a mesh's traffic and prints ``METRIC``, and what finds the times of each traffic.

    :raises UsageError: without an order for this mesh.
    """
    mesh, path = read_mesh(mesh_file), Path(options.order) if options.order else workspace.ORDER
    order = read_order(path) if path.is_file() else None
    if order is None or not order.mesh or order.mesh != mesh.file():
        raise UsageError(f"{path} is no order for {mesh_file}: `plink reorder --mesh-file {mesh_file}` finds one")
    config = {
        "shape": [size for _, size in mesh.axes],
        "traffic": [
            {
                "along": [k for k, (name, _) in enumerate(mesh.axes) if name in each.axes],
                "kind": each.kind,
                "bytes": each.sizes,
                "weight": weight_of(each),
            }
            for each in mesh.traffic
        ],
        "repeats": _REPEATS,
    }
    with scratch_folder() as folder:
        (folder / _NAME).write_text(Path(program.__file__).read_text())
        setup = new_job(_NAME, [program.pack_config(config)], replace(options, sync=folder), options.runner or "ssh")
        setup = replace(setup, job=replace(setup.job, workdirs=(str(folder),)))
        yield setup, lambda printed: _by_traffic(mesh, order, printed)


def _by_traffic(mesh: Mesh, order: RankOrder, printed: Mapping[OrderName, Sequence[str]]) -> list[ComparedTraffic]:
    """Return the median seconds of each traffic in both orders, beside what was predicted.

    :param printed: what the ranks of all runs in an order printed.
    """
    rows = {
        name: [json.loads(line)["traffic_s"] for line in lines if line.startswith('{"step_s"')]
        for name, lines in printed.items()
    }
    rows_of_order = order.cost_by_traffic or ()
    sent = leaving(mesh, len(order.hosts))
    costs = dict(zip(sent, rows_of_order, strict=True)) if len(sent) == len(rows_of_order) else {}
    names = labels(mesh.traffic)
    result = []
    for k, each in enumerate(mesh.traffic):
        is_library_s = each.kind == "all-reduce" and each.algorithm != "ring"  # which runs an algorithm of its own
        cost = None if is_library_s else costs.get(each)
        result.append(
            ComparedTraffic(
                traffic=names[k],
                given_s=statistics.median(row[k] for row in rows["given"]),
                plink_s=statistics.median(row[k] for row in rows["plink"]),
                given_predicted_s=None if cost is None else cost.baseline / 1e6,
                plink_predicted_s=None if cost is None else cost.cost / 1e6,
            )
        )
    return result
