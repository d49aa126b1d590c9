"""Harlap's figures on pipelines, beside what is recorded of plink: those of the lab, and those of made networks."""

from typing import Any

from benchmarks.drawing import strips
from benchmarks.thesis_plot import ThesisPlot

LABELS = {
    "vgg": "VGG-16", "gnmt": "GNMT-8", "alexnet": "AlexNet", "lm": "AWD LM", "s2vt": "S2VT", "resnet": "ResNet-50",
}  # fmt: skip


def lab_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return Table 5.1 (four GPUs) and Figure 5.15, of pipelines that were run."""
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
    errors = {
        label: [100 * (seconds / row["predicted_s"] - 1) for seconds in row["pipeline_s"]]
        for label, row in rows.items()
    }
    medians = {label: sorted(samples)[len(samples) // 2] for label, samples in errors.items()}
    low, high = min(medians.values()), max(medians.values())
    predicted = strips(
        "harlap-5-15", "Measured over predicted seconds of a minibatch, less one", "plans of the same runs", errors, "%"
    )
    return {
        "harlap-table-5-1": ThesisPlot(text, table),
        "harlap-5-15": ThesisPlot(f"measured {low:+.0f} to {high:+.0f} % of what the plan predicts", predicted),
    }


def planner_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return figures 5.13a, 5.17 and 5.18 and section 5.5.4, of simulated pipelines."""
    four = figures["predicted_4_hosts"]
    names = [name for name, row in four.items() if row["kind"] != "data-parallel"]
    alone = {name: [four[name]["over_model_parallel"]] for name in names}
    fewer = {name: [100 * four[name]["fewer_bytes"]] for name in names}
    depth = {
        name: [size / 1e6 for size in row["first_stage_by_depth_4_to_7"]] for name, row in figures["memory"].items()
    }
    gpipe = {f"{hosts} hosts": [times] for hosts, times in figures["gpipe"].items()}
    grown = [samples[-1] / samples[0] for samples in depth.values()]
    return {
        "harlap-5-13a": ThesisPlot(
            f"{min(map(max, alone.values())):.1f} to {max(map(max, alone.values())):.1f} times",
            strips("harlap-5-13a", "Pipelines on four hosts over model parallelism", "simulated", alone, "times"),
        ),
        "harlap-5-5-4": ThesisPlot(
            " and ".join(f"{times[0]:.2f} times on {hosts}" for hosts, times in gpipe.items()),
            strips("harlap-5-5-4", "GPipe over the plan, GNMT-like", "simulated", gpipe, "times as long"),
        ),
        "harlap-5-17": ThesisPlot(
            ", ".join(f"{samples[0]:.0f} % ({name})" for name, samples in fewer.items()),
            strips("harlap-5-17", "Bytes fewer than data parallelism sends", "four hosts", fewer, "% fewer"),
        ),
        "harlap-5-18": ThesisPlot(
            f"{min(grown):.2f} and {max(grown):.2f} times from depth 4 to 7, along a straight line",
            strips("harlap-5-18", "Memory of the first stage at depths 4 to 7", "by the plan", depth, "MB"),
        ),
    }
