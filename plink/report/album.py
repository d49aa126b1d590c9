"""Which pictures there are of a network, and what each one's title says."""

import numpy as np

from plink.model.network import Matrix
from plink.report.achieved import achieved
from plink.report.blocks import between
from plink.report.canvas import Picture
from plink.report.colours import Palette, scale_of
from plink.report.facts import Facts, Map
from plink.report.heat_map import MIXED, Shown, departures, round_trips
from plink.report.histogram import histogram
from plink.report.host_map import host_map
from plink.report.words import collective

_NONE_US = 1e-2  # what a fit says of hosts that are nothing apart


def album(facts: Facts, palette: Palette) -> dict[str, Picture]:
    """Every picture that can be drawn of these facts, by name: ``given``, ``order``, ``map``, ``departures``,
    ``histogram``, ``achieved``."""
    scale = scale_of(facts.values_us())
    given, shown = shown_rows(facts, "given"), shown_rows(facts, "order")
    measured = {name: facts.blocks[name][1].median if facts.many else facts.measured_us for name in ("given", "order")}
    caption = ("Round trips, hosts as given", _given(facts))
    found = [round_trips("given", _of_blocks(facts, caption), measured["given"], given, scale, palette)]
    if facts.rearranged:
        caption = _of_blocks(facts, order_caption(facts))
        found.append(round_trips("order", caption, measured["order"], shown, scale, palette))
    if facts.map is not None:
        found.append(host_map(facts, facts.map, palette))
        usual = f"{facts.map.held_out_error:.0%} is usual on pairs it has not seen"
        signs = "orange: slower than fitted, purple: faster"
        caption = ("What the embedding does not explain", signs if facts.many else f"{signs}; {usual}")
        ratio = ratio_of(facts.measured_us, facts.map)
        if facts.many:
            ratio = between(ratio, facts.blocks["order"][0]).median
        found.append(departures("departures", _of_blocks(facts, caption), ratio, shown, palette))
    found.append(histogram(facts, scale, palette))
    if any(run.predicted_us is not None for run in facts.runs):
        found.append(achieved(facts.runs, palette))
    return {picture.name: picture for picture in found}


def shown_rows(facts: Facts, name: str) -> Shown:
    """The rows of the heat map ``given``, as hosts stand in the file; or of ``order``: by place in the order, group by
    group where there is none."""
    if name == "given":
        order, counted = np.arange(len(facts.names)), "position in the file"
    else:
        order = facts.shown_order()
        counted = "place in the order" if facts.route is not None else "position when sorted by group"
    if not facts.many:
        return Shown(order, facts.names, facts.groups.of, counted)
    members = facts.blocks[name][0].members
    groups = [set(facts.groups.of[hosts].tolist()) for hosts in members]
    return Shown(
        np.arange(len(members)),
        tuple(facts.names[hosts[0]] for hosts in members),
        np.array([group.pop() if len(group) == 1 else MIXED for group in groups], dtype=np.intp),
        f"block of hosts, by {counted}",
        whole=False,
    )


def _of_blocks(facts: Facts, caption: tuple[str, str]) -> tuple[str, str]:
    """A heat map's title and second line, with what a cell is where that is no pair of hosts."""
    return (caption[0], f"{caption[1]}; cells are medians of blocks of hosts") if facts.many else caption


def ratio_of(measured_us: Matrix, there: Map) -> Matrix:
    """Measured over fitted round trips, shape (N, N), NaN where either is unknown or one of them is none."""
    known = np.isfinite(there.fitted_us) & (np.nan_to_num(there.fitted_us) > 0) & (np.nan_to_num(measured_us) > 0)
    ratio = np.full(measured_us.shape, np.nan)
    ratio[known] = measured_us[known] / there.fitted_us[known]
    ratio[(measured_us == 0) & (there.fitted_us < _NONE_US)] = 1.0
    np.fill_diagonal(ratio, np.nan)
    return ratio


def order_caption(facts: Facts) -> tuple[str, str]:
    """Title and second line of the heat map in plink's order."""
    if facts.route is None:
        return "The same round trips, hosts sorted by group", _given(facts)
    if np.array_equal(facts.route.order, np.arange(len(facts.names))):
        return "The same round trips in plink's order", "it is the given order: nothing better was found"
    return f"The same round trips in plink's order for {collective(facts.route.algo)}", _blocks(facts)


def _blocks(facts: Facts) -> str:
    """Whether the order keeps groups together; the last one's neighbour is the first."""
    number, labels = facts.groups.number, facts.groups.of[facts.shown_order()]
    blocks = max(1, int((labels != np.roll(labels, 1)).sum()))
    if number == 1:
        return "no groups stand out"
    return "each group stands in one block" if blocks == number else f"the {number} groups stand in {blocks} blocks"


def _given(facts: Facts) -> str:
    number = facts.groups.number
    if facts.many and number > 1:
        return f"{number} groups"
    return f"edges coloured by the {number} groups" if number > 1 else "no groups stand out"
