"""``plink advise --parameters``: the balance of a step and the network, as a table and in a few sentences."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plink.errors import InputError, UsageError
from plink.model.codec import convert
from plink.model.network import Network
from plink.model.storage import name_of, parse_toml, read_text
from plink.model.units import format_bytes, format_gbps, format_time
from plink.records import workspace
from plink.records.runs import run_named
from plink.terminal.screen import print_json, print_lines, say, show_table, status_line
from solvers.balance_money import NetworkParts

if TYPE_CHECKING:
    from plink.features.advise.balance import Balance, FormBalance
    from plink.features.advise.request import BalanceRequest
    from solvers.balance_money import NetworkParts

PRICING = "searching and pricing orders"
_MIN_GAIN = 1.02  # below it nothing gains
_NO_HUBS = "No host's link was measured twice as wide as the others': none gains as a hub (role=hub gbps=X states one)."


def recorded_step(name: str) -> tuple[int, float]:
    """Return the bytes and the seconds of a step of a recorded run.

    :raises UsageError: when there is no such run, or it has none.
    """
    run = run_named(workspace.RUNS, name)
    size_bytes, step_s = run.document.get("bytes_per_step"), run.document.get("step_s")
    if not isinstance(size_bytes, int) or not isinstance(step_s, int | float):
        raise UsageError(
            f"--run {name}: run {run.id} did not last for enough steps of AggEngine; give --parameters and --step"
        )
    say(f"run {run.id}: {format_bytes(size_bytes)} a step of {format_time(step_s)}, what was not hidden then included")
    return size_bytes, step_s


def read_parts(path: Path) -> "NetworkParts":
    """Read the prices of parts, a TOML file.

    :raises InputError: naming the key that is missing, wrong or not known.
    """
    location = name_of(path)
    document = parse_toml(read_text(path), location, "prices of parts are")
    if unknown := sorted(document.keys() - NetworkParts.__annotations__.keys()):
        raise InputError(f"{location}: {unknown[0]}", f"choose from {', '.join(NetworkParts.__annotations__)}")
    parts: NetworkParts = convert(NetworkParts, document, location)
    return parts


def show_balance(
    request: "BalanceRequest", network: Network, path: Path, prices: Path | None, max_age_s: float, as_json: bool
) -> None:
    """Print the balance of a step and a network; warn where the network's file is older than this.

    :param path: of the network's file. :param prices: of parts, a TOML file; None: hosts are rented.
    """
    from plink.features.advise.balance import balance

    if prices is not None:
        request = replace(request, parts=read_parts(prices))
    if path.is_file() and workspace.age_s(path, network.measured_at) > max_age_s:
        old = workspace.age(path, network.measured_at)
        say(f"warning: {path} is {old} old, more than --max-network-age: its rates may have changed")
    with status_line(PRICING):
        result = balance(network, request)
    for algo, reason in result.advice.left_out.items():
        say(f"{algo} is left out: {reason}")
    if as_json:
        print_json(result.stated().to_json())
    else:
        _print(result)


def _print(balance: "Balance") -> None:
    """Print a row for each form, the best first, and what follows from them."""
    money = [balance.money(form) for form in balance.forms]
    per_money = [prices[1] for prices in money if prices is not None]
    columns = ["form", "busiest link", "bytes", "has", "needs", "exchange", "not hidden"]
    rows = []
    for form, prices in zip(balance.forms, money, strict=True):
        link = form.link
        others = f" (and {link.equals})" if link.equals else ""
        needs = format_gbps(form.need_gbps) if math.isfinite(form.need_gbps) else "none does"
        rows.append([
            _name(balance, form), link.name + others, format_bytes(link.bytes), format_gbps(link.gbps), needs,
            format_time(form.exchange_s), format_time(form.exposed_s) if form.exposed_s else "0",
            *([f"{prices[1] / max(per_money):.2f}"] if prices is not None else []),
        ])  # fmt: skip
    show_table([*columns, *(["work per money"] if per_money else [])], rows)
    print_lines(*_conclusions(balance))


def _name(balance: "Balance", form: "FormBalance") -> str:
    """Return the name of a form, with its order, and its ranks where hubs took hosts of some."""
    fewer = form.workers < max(each.workers for each in balance.forms)
    order = "" if form.servers else f", order {form.order}"
    return form.name + (f", {form.workers} ranks" if fewer else order)


def _conclusions(balance: "Balance") -> Iterator[str]:
    request, best = balance.request, balance.forms[0]
    size, hidden = format_bytes(request.parameter_bytes), format_time(request.hidden_s)
    hiding = sum(form.exposed_s == 0 for form in balance.forms)
    if hiding:
        hide = "hides" if hiding == 1 else "hide"
        yield f"{hiding} of {len(balance.forms)} forms {hide} {size} in {hidden}, {best.name} with the most room."
    else:
        yield f"No form hides {size} in {hidden}: {best.name} leaves least, {format_time(best.exposed_s)} of each step."
    yield from filter(None, [_on_hubs(balance, balance.without_hubs)])
    hub, by_rack = balance.of("phub"), balance.of("phub-2l")
    if hub is not None and by_rack is not None:
        verdict = "Go" if by_rack.exchange_s < hub.exchange_s else "Do not go"
        times = f"phub-2l takes {by_rack.exchange_s / hub.exchange_s:.2f} times as long as phub"
        yield f"{verdict} rack by rack: {times}."
    if balance.unpriced and len(balance.unpriced) < len(balance.advice.network.hosts):
        say(f"no work per money: price= is missing of {', '.join(balance.unpriced)}")


def _on_hubs(balance: "Balance", base: "FormBalance | None") -> str:
    """Return which hosts to make hubs, or why none."""
    hubs = balance.with_hubs
    if hubs is None or base is None:
        return "" if hubs else _NO_HUBS
    gain, names = hubs.work / base.work, ", ".join(hubs.servers)
    does = f"{hubs.name} does {gain:.2f} times the work of {base.name}"
    use = f"Use {names}" if balance.hubs_stated else f"Give {names} role=hub"
    verdict = "No hub gains" if gain < _MIN_GAIN else use
    if not math.isfinite(hubs.need_gbps):
        return f"{verdict}: {does}."
    together, each = format_gbps(balance.hub_gbps), format_gbps(balance.hub_gbps / hubs.workers)
    return f"{verdict}: {does}. To hide all, hubs need at least {together} together and each worker {each}, each way."
