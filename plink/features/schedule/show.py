"""Lines of a schedule and of what it moves."""

from collections.abc import Iterator

from plink.model.schedule import Schedule
from plink.model.schedule_file import ScheduleCount
from plink.model.units import format_bytes, numbered


def summary(schedule: Schedule) -> str:
    """Return a schedule in a line."""
    contributors = schedule.contributors
    contributors_text = "" if contributors is None else f", of which {len(contributors)} contribute"
    return (
        f"{schedule.algo}, {schedule.collective}, {schedule.ranks} ranks{contributors_text}: "
        f"{numbered(schedule.rounds, 'round')}, {numbered(len(schedule), 'transfer')} of "
        f"{numbered(schedule.chunks, 'chunk')}"
    )


def rounds(schedule: Schedule) -> Iterator[str]:
    """Yield every round with its transfers."""
    for number, part in enumerate(schedule.round_slices()):
        yield f"round {number}:"
        for m in range(part.start, part.stop):
            first, last = int(schedule.first[m]), int(schedule.first[m] + schedule.count[m]) - 1
            chunks = f"chunk {first}" if first == last else f"chunks {first}-{last}"
            yield f"  {schedule.source[m]} -> {schedule.target[m]}  {chunks}{'' if schedule.copies[m] else ', added'}"


def count_lines(count: ScheduleCount) -> Iterator[str]:
    """Yield what a schedule moves."""
    moves = f"{numbered(count.rounds, 'round')}, {numbered(count.transfers, 'transfer')}"
    yield f"{moves}, {format_bytes(count.bytes_on_wire)} on the wire"
    ends = list(zip(count.sent_bytes, count.received_bytes, strict=True))
    busiest = max(range(len(ends)), key=lambda rank: sum(ends[rank]))
    sent, received = map(format_bytes, ends[busiest])
    yield f"busiest rank {busiest}: {sent} sent, {received} received"
    if count.cross_group_bytes is not None:
        yield f"{format_bytes(count.cross_group_bytes)} between groups"
