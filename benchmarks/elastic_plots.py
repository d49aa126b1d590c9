"""The figures of elastic jobs (Harlap thesis, Figures 4.10 to 4.15) as text and pictures for docs/results/theses.md."""

from collections.abc import Sequence
from typing import Any

from benchmarks.thesis_plot import ThesisPlot


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    plots = {}
    if stages := figures.get("stages"):
        names = {
            "harlap-4-10": (
                "traditional",
                "stage 1, 8 reliable",
                "stage 1, 4 reliable",
                "stage 1, 2 reliable",
                "stage 1",
            ),
            "harlap-4-11": ("traditional", "stage 1", "stage 2"),
            "harlap-4-12": ("traditional", "stage 2", "stage 3"),
            "harlap-4-13": ("traditional", "stage 2, 8 reliable", "stage 3, 8 reliable"),
        }
        plots = {plot: _stages_plot(plot, stages, wanted) for plot, wanted in names.items()
                 if all(name in stages["ratios"] for name in wanted)}  # fmt: skip
    if scaling := figures.get("scaling"):
        plots["harlap-4-14"] = _scaling_plot(scaling)
    if elastic := figures.get("elastic"):
        plots["harlap-4-15"] = _elastic_plot(elastic)
    return plots


_LABELS = {
    "traditional": "traditional, 16 reliable", "stage 1": "stage 1, 1 reliable", "stage 2": "stage 2, 1 reliable",
    "stage 3": "stage 3, 1 reliable",
}  # fmt: skip


def _stages_plot(plot: str, stages: dict[str, Any], names: Sequence[str]) -> ThesisPlot:
    from benchmarks.drawing import strips

    text = "beside the traditional server: " + ", ".join(
        f"{_LABELS.get(name, name)} {stages['ratios'][name]:.2f}" for name in names if name != "traditional"
    )
    raw = stages.get("raw", {})
    rows = {
        _LABELS.get(name, name): [
            value for run in raw.get(name, []) for number, value in run.items() if int(number) >= 3
        ] or [stages["seconds"][name]]
        for name in names
    }  # fmt: skip
    second = "MF, 1 MB, 16 lab hosts of 100 Mbit/s; iterations from the fourth on, bars: the median of runs' medians"
    medians = {_LABELS.get(name, name): stages["seconds"][name] for name in names}
    return ThesisPlot(
        text, strips(plot, "Time of an iteration", second, rows, "seconds", medians=medians), part="stages"
    )


def _scaling_plot(scaling: dict[str, Any]) -> ThesisPlot:
    from benchmarks.drawing import curves

    seconds, ideal = ({int(k): v for k, v in scaling[key].items()} for key in ("seconds", "ideal"))
    text = "; ".join(
        f"{hosts} hosts {took:.2f} s, {took / ideal[hosts]:.2f} of ideal" for hosts, took in seconds.items()
    )
    series = {
        "measured": (list(seconds), list(seconds.values())), "ideal, from 4 hosts": (list(ideal), list(ideal.values()))
    }  # fmt: skip
    picture = curves(
        "harlap-4-14", "Time of an iteration, by hosts",
        "work that waits; traditional with 4, stage 1 with 8, 3 with 16",
        series, "hosts", "seconds",
    )  # fmt: skip
    return ThesisPlot(text, picture, part="scaling")


def _elastic_plot(elastic: dict[str, Any]) -> ThesisPlot:
    from benchmarks.drawing import curves

    text = "; ".join(
        f"iterations of {some['usual_s']:.2g} s: while hosts start {some['worst_while_adding']:.2f} times that at "
        f"worst, {some['worst_afterwards']:.2f} times in the five after they have begun, the longest at the eviction "
        f"{some['eviction']:.2f} times its neighbours, "
        f"one of 16 hosts {some['with_16_s'] / some['usual_s']:.2f} times one of 4"
        for some in (elastic.get("long"), elastic)
        if some
    )
    if waiting := elastic.get("waiting"):
        text += (
            f"; with work that waits, {waiting['usual_s']:.2g} s of 4 hosts and {waiting['with_16_s']:.2g} s of 16: "
            f"{waiting['worst_while_adding']:.2f} times the first while hosts start, "
            f"{waiting['afterwards_beside_before']:.2f} in the five after, {waiting['eviction']:.2f} at the eviction"
        )
    text += f"; parameters of these the same to {elastic['largest_difference']:.0e} as of a job that nobody disturbs"
    series = {
        label: ([int(number) for number in elastic[key]], list(elastic[key].values()))
        for label, key in (("hosts come and go", "seconds"), ("undisturbed, 4 hosts", "undisturbed"))
        if elastic.get(key)
    }
    # Iterations are numbered from 0, the thesis's from 1.
    picture = curves(
        "harlap-4-15", "Time of an iteration while hosts come and go",
        "12 hosts join 4 at iteration 10, are warned at 34", series,
        "iteration", "seconds", spans={"16 hosts": (elastic["took_over"], elastic["left"])},
    )  # fmt: skip
    return ThesisPlot(text, picture, part="elastic")
