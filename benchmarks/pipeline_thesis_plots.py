"""Harlap's figures on pipelines, beside what is recorded of plink."""

from typing import Any

from benchmarks.drawing import strips
from benchmarks.thesis_plot import ThesisPlot

LABELS = {
    "vgg": "VGG-16", "gnmt": "GNMT-8", "alexnet": "AlexNet", "lm": "AWD LM", "s2vt": "S2VT", "resnet": "ResNet-50",
}  # fmt: skip


def lab_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return Table 5.1 (four GPUs)."""
    rows = {LABELS[name]: row for name, row in figures["shapes"].items() if row["measured"] == row["plan"]}
    gains = {
        label: [row["rival_s"][k] / seconds for k, seconds in enumerate(row["pipeline_s"]) if k < len(row["rival_s"])]
        for label, row in rows.items()
    }
    text = ", ".join(f"{row['gain']:.2f} ({label}, {row['plan']})" for label, row in rows.items())
    table = strips(
        "harlap-table-5-1", "Pipelines on four hosts over data parallelism", "crosses: the thesis", gains,
        "times as fast", marks={label: row["thesis"] for label, row in rows.items()},
    )  # fmt: skip
    return {"harlap-table-5-1": ThesisPlot(text, table)}


def rack_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return figures 5.13a, 5.13b, 5.15 and 5.17 and section 5.5.4, of pipelines on 4 and 16 lab hosts."""
    plots = {}
    if plans := figures.get("predictions", {}).get("plans"):
        errors: dict[str, list[float]] = {}
        for row in plans:
            kind = row["plan"] if row["plan"] == "data parallelism" else "pipelines"
            errors.setdefault(f"{row['model']}, {kind}", []).append(100 * (row["predicted_s"] / row["measured_s"] - 1))
        low, high = min(map(min, errors.values())), max(map(max, errors.values()))
        plots["harlap-5-15"] = ThesisPlot(
            f"{len(plans)} plans of two models: predictions {low:+.0f} to {high:+.0f} % off",
            strips("harlap-5-15", "Predicted over measured seconds of a minibatch, less one", "16 hosts", errors, "%"),
            part="predictions",
        )  # fmt: skip
    if gpipe := figures.get("gpipe"):
        times = {
            f"{count} hosts": [rows[count]["measured_s"] / rows["straight"]["measured_s"]]
            for count, rows in gpipe.items()
        }
        plots["harlap-5-5-4"] = ThesisPlot(
            " and ".join(f"{samples[0]:.2f} times on {hosts}" for hosts, samples in times.items()),
            strips("harlap-5-5-4", "GPipe over a straight pipeline", "GNMT-like", times, "times as long"),
            part="gpipe",
        )
    if bytes_ := figures.get("bytes"):
        fewer = {LABELS[name]: [100 * row["fewer"]] for name, row in bytes_.items()}
        plots["harlap-5-17"] = ThesisPlot(
            ", ".join(f"{samples[0]:.0f} % ({name})" for name, samples in fewer.items()),
            strips("harlap-5-17", "Bytes fewer than data parallelism sends", "counted, four hosts", fewer, "% fewer"),
            part="bytes",
        )
    if rows := figures.get("without_pipelining"):
        gains = {
            name.replace(name.partition(",")[0], LABELS[name.partition(",")[0]]): [row["gain"]]
            for name, row in rows.items()
        }
        for plot in ("harlap-5-13a", "harlap-5-13b"):
            own = {name: samples for name, samples in gains.items() if ("S2VT" in name) == plot.endswith("b")}
            plots[plot] = ThesisPlot(
                ", ".join(f"{samples[0]:.1f} ({name})" for name, samples in own.items()),
                strips(plot, "Pipelines over one minibatch in flight", "four lab hosts", own, "times as fast"),
                part="without_pipelining",
            )
    return plots


def memory_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return figures 5.16 and 5.18, of tensors that were counted."""
    shares = {
        model: [size / max(row["data_parallel"]["counted"]) for size in row["straight"]["counted"]]
        for model, row in figures.items()
    }
    grown = {model: [size / 1e6 for size in row["first_stage_by_depth"]] for model, row in figures.items()}
    ratios = [samples[-1] / samples[0] for samples in grown.values()]
    return {
        "harlap-5-16": ThesisPlot(
            ", ".join(f"{max(samples):.2f} ({model})" for model, samples in shares.items()),
            strips("harlap-5-16", "Memory of stages over data parallelism", "four processes", shares, "times as much"),
        ),
        "harlap-5-18": ThesisPlot(
            f"{min(ratios):.2f} to {max(ratios):.2f} times from depth 4 to 7, in equal steps",
            strips("harlap-5-18", "Memory of the first stage at depths 4 to 7", "counted", grown, "MB"),
        ),
    }
