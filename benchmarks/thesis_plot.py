"""What a benchmark has to show for a figure of the theses."""

from dataclasses import dataclass

from plink.pictures import Picture


@dataclass(frozen=True)
class ThesisPlot:
    """``ours``: the figure in a few words; ``picture``: its plot; ``details``: Markdown that goes below the table;
    ``part``: of which part of the benchmark's figures, where parts are measured by themselves."""

    ours: str
    picture: Picture
    details: str = ""
    part: str | None = None
