"""The figures of helped stragglers (Harlap thesis, Figures 3.6 to 3.12) as text and pictures for
docs/results/theses.md."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.thesis_plot import ThesisPlot

_MODES = ("BSP", "SSP", "BSP RR", "FlexRR")
_SECOND = "16 workers in virtual time, 20 iterations, means of 3 seeds"
Row = Mapping[str, Sequence[float]]


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    return {
        "harlap-3-6": _slow_worker(figures["slow worker"]),
        "harlap-3-7": _convergence(figures["convergence"]),
        "harlap-3-8": _power_law(figures["power-law"]),
        "harlap-3-9": _disrupted(figures["disrupted machine"]),
        "harlap-3-10": _uneven(figures["uneven"]),
        "harlap-3-11": _tail(figures["tail"]),
        "harlap-3-12": _settings(figures["settings"]),
    }


def _ratio(row: Row) -> float:
    return mean(row["over_ideal"])


def _table(head: str, levels: Mapping[str, Mapping[str, Row]]) -> str:
    """Return a Markdown table: a row for each level, a column for each mode, and the share that FlexRR moves."""
    columns = list(next(iter(levels.values())))
    lines = [f"Times over ideal:\n\n| {head} | {' | '.join(columns)} | moved |", "|---" * (len(columns) + 2) + "|"]
    for level, row in levels.items():
        cells = " | ".join(f"{_ratio(row[column]):.3f}" for column in columns)
        lines.append(f"| {_spaced(level)} | {cells} | {100 * mean(row[columns[-1]]['moved']):.0f} % |")
    return "\n".join(lines)


def _spaced(text: str) -> str:
    return text.replace("%", " %")


def _levels(name: str, heading: str, xlabel: str, levels: Mapping[str, Mapping[str, Row]]) -> Any:
    from benchmarks.drawing import curves

    places = list(range(len(levels)))
    series = {mode: (places, [_ratio(row[mode]) for row in levels.values()]) for mode in _MODES}
    ticks = dict(zip(map(float, places), map(_spaced, levels), strict=True))
    return curves(name, heading, _SECOND, series, xlabel, "time over ideal", xticks=ticks)


def _slow_worker(levels: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    most = levels["400%"]
    text = (
        f"at 400 %, over ideal: {_each(most)}; helpers do {100 * mean(levels['0%']['FlexRR']['moved']):.0f} % of the "
        f"work at 0 % and {100 * mean(most['FlexRR']['moved']):.0f} % at 400 %; at 0 % all modes take the same"
    )
    picture = _levels("harlap-3-6", "Slow Worker", "delay", levels)
    return ThesisPlot(text, picture, _table("delay", levels))


def _each(row: Mapping[str, Row]) -> str:
    return ", ".join(f"{mode} {_ratio(row[mode]):.2f}" for mode in _MODES)


def _less(row: Mapping[str, Row]) -> str:
    """Return by how much less time than BSP the modes take."""
    return ", ".join(f"{mode} {100 * (1 - _ratio(row[mode]) / _ratio(row['BSP'])):.0f} %" for mode in _MODES[1:])


def _power_law(levels: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    text = f"alpha 11, less time than BSP: {_less(levels['11'])}; alpha 4: {_less(levels['4'])}"
    picture = _levels("harlap-3-8", "Power-Law", "alpha: the smaller, the longer the tail", levels)
    return ThesisPlot(text, picture, _table("alpha", levels))


def _disrupted(levels: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    text = (
        f"at 400 %, less time than BSP: {_less(levels['400%'])}; FlexRR {_ratio(levels['400%']['FlexRR']):.2f} of ideal"
    )
    picture = _levels("harlap-3-9", "Disrupted Machine", "delay", levels)
    return ThesisPlot(text, picture, _table("delay", levels))


def _uneven(levels: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    from benchmarks.drawing import strips

    rows = {f"{mode}: {where}": row[mode]["over_ideal"] for where, row in levels.items() for mode in _MODES}
    heavy = levels["every other worker"]
    text = f"every other worker has 75 % of the work, over ideal: {_each(heavy)}"
    picture = strips("harlap-3-10", "Uneven", "half of 16 workers have 75 % of the work", rows, "time over ideal")
    return ThesisPlot(text, picture, _table("who has more", levels))


def _convergence(levels: Mapping[str, Mapping[str, Any]]) -> ThesisPlot:
    from benchmarks.drawing import curves

    slow = levels["400%"]
    series = {
        mode: ([at for at, _ in row["samples"]], [value for _, value in row["samples"]]) for mode, row in slow.items()
    }
    picture = curves(
        "harlap-3-7", "Objective against time", "softmax regression, 16 workers, 400 % Slow Worker", series,
        "undisturbed iterations", "objective", points=False,
    )  # fmt: skip
    counts = "; ".join(
        f"{_spaced(level)} delay: " + ", ".join(f"{mode} {row['clocks']} iterations" for mode, row in rows.items())
        for level, rows in levels.items()
    )
    share = slow["FlexRR"]["seconds"] / slow["BSP"]["seconds"]
    text = f"{counts}; at 400 % FlexRR takes {share:.2f} of BSP's time to there"
    lines = ["| delay, mode | iterations | time | objective |", "|---" * 4 + "|"]
    for level, rows in levels.items():
        lines += [
            f"| {_spaced(level)}, {mode} | {row['clocks']} | {row['seconds']:.1f} | {row['objective']:.4f} |"
            for mode, row in rows.items()
        ]
    head = "Until the objective changes by less than 2 % in 10 iterations; time in undisturbed iterations:\n\n"
    return ThesisPlot(text, picture, head + "\n".join(lines))


def _tail(levels: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    from benchmarks.drawing import curves

    places = list(range(len(next(iter(levels.values())))))
    series = {f"{_spaced(level)} Slow Worker": (places, [_ratio(each) for each in row.values()])
              for level, row in levels.items()}  # fmt: skip
    shares = [_spaced(share) for share in next(iter(levels.values()))]
    picture = curves(
        "harlap-3-11", "FlexRR with part of the helpees' data", _SECOND, series, "share that helpers have",
        "time over ideal", xticks=dict(zip(map(float, places), shares, strict=True)),
    )  # fmt: skip
    text = "FlexRR over ideal with 25 % and with all of the data: " + ", ".join(
        f"{_ratio(row['25%']):.2f} and {_ratio(row['100%']):.2f} ({_spaced(level)})" for level, row in levels.items()
    )
    lines = ["FlexRR over ideal:\n", f"| Slow Worker | {' | '.join(shares)} |", "|---" * (len(shares) + 1) + "|"]
    for level, row in levels.items():
        lines.append(f"| {_spaced(level)} | " + " | ".join(f"{_ratio(each):.3f}" for each in row.values()) + " |")
    return ThesisPlot(text, picture, "\n".join(lines))


def _settings(settings: Mapping[str, Mapping[str, Row]]) -> ThesisPlot:
    from benchmarks.drawing import strips

    rows = {
        f"{name}: {_spaced(value)}": row["over_ideal"]
        for name, values in settings.items()
        for value, row in values.items()
    }
    picture = strips("harlap-3-12", "FlexRR by setting", "400 % Slow Worker, 3 seeds", rows, "time over ideal")
    helpers, parts = settings["helpers"], settings["parts"]
    others = [_ratio(row) for name in ("follow-up", "trigger", "report") for row in settings[name].values()]
    text = (
        f"at 400 %, over ideal: 1, 3 and 4 helpers {_ratio(helpers['1']):.2f}, {_ratio(helpers['3']):.2f} and "
        f"{_ratio(helpers['4']):.2f}; follow-ups of 2.5 to 30 %, triggers of 5 to 40 % and reports at 25 to 90 % "
        f"{min(others):.2f} to {max(others):.2f}; 8, 30 and 100 checks an iteration {_ratio(parts['8']):.2f}, "
        f"{_ratio(parts['30']):.2f} and {_ratio(parts['100']):.2f}"
    )
    lines = ["| setting | FlexRR over ideal |", "|---|---|"]
    for name, values in settings.items():
        cells = ", ".join(f"{_spaced(value)}: {_ratio(row):.3f}" for value, row in values.items())
        lines.append(f"| {name} | {cells} |")
    return ThesisPlot(text, picture, "\n".join(lines))
