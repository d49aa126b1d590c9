"""One `plink check`, from what was asked for to what is printed, written and the exit code.

Imported when the command runs: it needs the solvers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from plink.api.connecting import connector_for
from plink.cli.affinity import affinity_of
from plink.cli.checking import Limits, baseline_from, judged, say_strange, show, timed
from plink.cli.inputs import network_from
from plink.cli.junit import Case, write_junit
from plink.cli.running_orders import Planned, Trying, describe, plan_orders, priced_again, run_orders
from plink.cli.screen import print_json, printable, say
from plink.errors import NoAnswer, PlinkError
from plink.model.network import Network
from plink.model.storage import STANDARD, check_apart, write_document
from plink.model.trials import CHECK, Series, read_series
from plink.model.truth import read_truth
from plink.model.units import format_us
from plink.records import workspace
from plink.records.scratch import scratch_folder
from runners.choice import runner_named
from solvers.prediction.topology import levels_apart


@dataclass(frozen=True)
class Asked:
    """What was typed; ``limits`` without the baseline, which ``max_regression`` is. ``model``: by which recorded runs
    are priced anew, None: by that of then."""

    network_file: Path | None
    measure: bool
    results: Path | None
    truth: Path | None
    min_paia: float | None
    algorithms: tuple[str, ...]
    trying: Trying
    model: str | None
    limits: Limits
    max_regression: Path | None
    dry_run: bool
    output: Path | None
    junit: Path | None
    as_json: bool
    accept_new_host_keys: bool


@dataclass
class _Found:
    """``document``: plink.check/1 as far as it is known. ``against``: of each of its ``checks`` what a comparison with
    the baseline says."""

    document: dict[str, Any]
    cases: list[Case] = field(default_factory=list)
    against: list[list[str]] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    def add(self, series: Series, limits: Limits, seconds: float = 0.0) -> None:
        """What was run, judged."""
        entry, cases = judged(series, limits, seconds)
        self.document["checks"].append(entry)
        self.cases += cases
        self.against.append([case.text for case in cases[1:]])  # after its correlation


def run(asked: Asked) -> None:
    """Check, print, write.

    :raises PlinkError: where it falls short, or cannot be found out.
    """
    target = target_of(asked.output)
    network_file = asked.network_file or workspace.NETWORK if _needs_network(asked) else None
    read = (network_file, asked.results, asked.truth, asked.max_regression)
    workspace.check_output(asked.junit, None, read)
    if asked.measure:
        check_apart(asked.junit, (), target)
        workspace.check_output(asked.output, target, read)
        if asked.output is None and not asked.dry_run:
            workspace.prepare()
    found = _Found({"schema": CHECK, "network": None})
    try:
        if asked.max_regression is not None:
            asked = replace(asked, limits=replace(asked.limits, baseline=baseline_from(asked.max_regression)))
        recorded = () if asked.results is None else read_series(asked.results)
        network = _network(asked)
        found.document["network"] = None if network is None else network.fingerprint()
        if asked.truth is not None and network is not None:
            _add_affinity(found, network, asked.truth, asked)
        if recorded:
            found.document["checks"] = []
            for series in recorded:
                found.add(series if asked.network_file is None else _priced(series, network, asked.model), asked.limits)
        if asked.measure and network is not None:
            plans = [plan_orders(network, algo, asked.trying) for algo in asked.algorithms]  # refused before a run
            if asked.dry_run:
                _rehearse(network, plans, asked.as_json)
                return
            _measure(found, network, plans, asked)
    except (PlinkError, KeyboardInterrupt) as error:
        why = str(error) or "it was interrupted"
        if asked.measure and found.document.get("checks"):  # what was run before took time, too
            failures = [*(case.text for case in found.cases if not case.ok), why]
            write_document(target, found.document | {"ok": False, "failures": failures})
            if str(target) != STANDARD:
                say(f"what was run -> {target}")
        if asked.junit is not None:
            write_junit(asked.junit, [*found.cases, Case("check", "check", None, why)])
        raise
    _tell(found, asked, target)


def target_of(output: Path | None) -> Path:
    """Where what was measured is left."""
    return output or workspace.FOLDER / "check.json"


def _needs_network(asked: Asked) -> bool:
    return asked.network_file is not None or asked.measure or asked.truth is not None


def _network(asked: Asked) -> Network | None:
    """The one that was named, or where one is needed the last one that was probed here."""
    if not _needs_network(asked):
        return None
    network: Network = network_from(asked.network_file)
    return network


def _priced(series: Series, network: Network | None, by: str | None) -> Series:
    """With what the trials cost by the network and the models of today."""
    assert network is not None
    model, costs = priced_again(series, network, by)
    trials = tuple(replace(trial, predicted_us=cost) for trial, cost in zip(series.trials, costs, strict=True))
    return replace(series, model=model, trials=trials)


def _rehearse(network: Network, plans: Sequence[Planned], as_json: bool) -> None:
    names = network.hosts.names
    rows: list[dict[str, Any]] = []
    for planned in plans:
        describe(planned)
        for order, cost in planned.orders:
            hosts = [names[host] for host in dict.fromkeys(order.tolist())]
            rows.append({"algo": planned.algo, "predicted_us": round(cost, 3), "hosts": hosts})
    if as_json:
        print_json({"schema": "plink.rehearsal/1", "runner": "check", "files": {}, "commands": [], "orders": rows})
        return
    for row in rows:
        print(f"{row['algo']}, {format_us(row['predicted_us'])}: {' '.join(row['hosts'])}")


def _measure(found: _Found, network: Network, plans: Sequence[Planned], asked: Asked) -> None:
    connector = connector_for(network.hosts, asked.accept_new_host_keys)
    machines = network.host_identities
    found.document["checks"] = []
    for planned in plans:
        describe(planned)
        with scratch_folder() as folder:
            work = partial(
                run_orders, network, planned, lambda name: runner_named(name, lambda: connector), machines, folder
            )
            series, seconds = timed(work)
        found.add(series, asked.limits, seconds)


def _add_affinity(found: _Found, network: Network, truth: Path, asked: Asked) -> None:
    paths = read_truth(truth, network.hosts)
    found.strange = [name for name, path in zip(network.hosts.names, paths, strict=True) if path is None]
    affinity = affinity_of(network, levels_apart(paths), asked.trying.seed)
    found.document |= {"truth": str(truth), "affinity": affinity, "unknown_hosts": found.strange}
    measured, least = affinity["measured"], asked.min_paia
    if measured is None:
        raise NoAnswer(f"{truth}: no two hosts are at different distances of a third; there is nothing to tell apart")
    ok = least is None or measured >= least
    limit = "" if least is None else f", --min-paia {least:g}" if ok else f" is below --min-paia {least:g}"
    found.cases.append(Case("truth", "paia", ok, f"PAIA {measured:.3f}{limit}"))


def _tell(found: _Found, asked: Asked, target: Path) -> None:
    """:raises PlinkError: where it falls short. :raises NoAnswer: where not all can be judged, and what can holds."""
    document = found.document
    failures = [case.text for case in found.cases if not case.ok]
    if "checks" in document:
        document["spearman"] = min(entry["spearman"] for entry in document["checks"])
    document |= {"ok": not failures, "failures": failures}
    to_file = asked.measure and str(target) != STANDARD
    if to_file:
        write_document(target, document)
    if asked.junit is not None:
        write_junit(asked.junit, found.cases)
    if asked.as_json or (asked.measure and not to_file):
        print_json(document)
    else:
        if (affinity := document.get("affinity")) is not None:
            print(f"measured distances have {affinity['measured']:.1%} of {affinity['triplets']:,} triplets right")
            if affinity["fitted"] is not None:
                print(f"fitted distances (--denoise) have {affinity['fitted']:.1%} right")
        for entry, against in zip(document.get("checks", []), found.against, strict=True):
            show(entry)
            for line in against:
                print(printable(line))
    say_strange(str(asked.truth), found.strange)
    if to_file:
        say(f"check -> {target}")
    if failures:
        short = any(case.ok is False for case in found.cases)
        raise (PlinkError if short else NoAnswer)("; ".join(failures))
