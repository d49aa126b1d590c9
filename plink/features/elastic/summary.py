"""Sum up an elastic run from its log, or that of one that still runs."""

import statistics
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import asdict, replace

from plink.errors import InputError
from plink.model.elastic import summary as m
from plink.model.storage import read_document
from plink.records.elastic_history import History, TimelineEvent
from runners.elastic.log_followers import spent
from runners.elastic.rule_replay import Division, hint, rule_in_use, step_seconds


def summary_of(history: History) -> m.ElasticSummary:
    """Return what an elastic run did and cost, by its log."""
    iterations = history.completed
    objectives = [each.objective for each in iterations if each.objective is not None]
    end = history.end
    return m.ElasticSummary(
        seconds=round(history.seconds, 3),
        end=None if end is None else m.RunEnd(why=end.why, code=end.code),
        iterations=len(iterations),
        lost=sum(step.rolled_back for step in history.steps),
        objective=objectives[-1] if objectives else None,
        stages=_stages(history),
        hosts=_hosts(history),
        rule=history.rule,
        shares=history.shares,
        rebalance=history.rebalance,
        waited=_waited(history),
        updates=history.updates.summary(),
        moved=round(sum(each.moved for each in iterations) / max(1, len(iterations)), 4),
        help=_help(history),
        hint=_hint(history),
        replication=m.ReplicationSummary(
            rounds=sum(each.rounds for each in history.replication),
            bytes=sum(each.bytes for each in history.replication),
            bound=history.divergence or None,
            largest_distance=max((each.largest_distance for each in history.replication), default=0.0),
        ),
        events=tuple(_event(event) for event in history.events),
        cost=spent(history.members, len(iterations)),
    )


def recorded_end(log: Path) -> m.RunEnd | None:
    """Return the end that the record beside a log tells, as of a run that was interrupted; None where it tells none."""
    try:
        document = read_document(log.parent / "run.json")
    except InputError:
        return None
    code, error = document.get("exit_code"), document.get("error")
    return m.RunEnd(why=error if isinstance(error, str) else "", code=code) if isinstance(code, int) else None


def _stages(history: History) -> tuple[m.StageSummary, ...]:
    times: dict[Literal[1, 2, 3], list[float]] = {}
    for each in history.completed:
        times.setdefault(each.stage, []).append(each.seconds)
    return tuple(
        m.StageSummary(stage=stage, iterations=len(taken), median_s=round(statistics.median(taken), 6))
        for stage, taken in sorted(times.items())
    )


def _hosts(history: History) -> tuple[m.HostSummary, ...]:
    """By name, in the order of joining: a host that came back is one line, as its traffic is."""
    rows: dict[str, m.HostSummary] = {}

    def add(host: str, **values: Any) -> None:
        rows[host] = replace(rows.get(host, m.HostSummary(host=host)), **values)

    for member in history.members:
        joined = member.joined
        held_s = (rows[joined.host].held_s or 0.0) if joined.host in rows else 0.0
        add(joined.host, tier=joined.tier, price=joined.price, held_s=round(held_s + member.until - joined.at, 3))
    for host, (sent, received) in history.traffic.items():
        add(host, sent_bytes=sent, received_bytes=received)
    for each in history.completed:
        for host, (computed_s, waited_s, steps) in each.work.items():
            row = rows.get(host, m.HostSummary(host=host))
            add(
                host,
                computed_s=round((row.computed_s or 0.0) + computed_s, 6),
                waited_s=round((row.waited_s or 0.0) + waited_s, 6),
                steps=(row.steps or 0) + steps,
            )
    return tuple(rows.values())


def _waited(history: History) -> float | None:
    """The share of the workers' time that they waited for others."""
    work = [row for each in history.completed for row in each.work.values()]
    total = sum(computed_s + waited_s for computed_s, waited_s, _ in work)
    return round(sum(waited_s for _, waited_s, _ in work) / total, 4) if total else None


def _help(history: History) -> dict[str, dict[str, float]]:
    """By host which share of its work others did for it, of a mean iteration in which it worked."""
    result: dict[str, dict[str, float]] = {}
    worked: dict[str, int] = {}
    for each in history.completed:
        for host in each.work:
            worked[host] = worked.get(host, 0) + 1
        for host, helpers in each.help.items():
            shares = result.setdefault(host, {})
            for helper, share in helpers.items():
                shares[helper] = shares.get(helper, 0.0) + share
    return {
        host: {helper: round(share / max(1, worked.get(host, 0)), 4) for helper, share in helpers.items()}
        for host, helpers in result.items()
    }


def _hint(history: History) -> m.RuleHint | None:
    """A rule that would have saved more than a tenth."""
    if history.rule is None:
        return None
    completed = history.completed
    batches = max(1, completed[-1].clock // (completed[-1].iteration + 1)) if completed else 1
    division = Division(history.shards, batches)
    steps = step_seconds([each.work for each in completed])
    rule = rule_in_use(history.rule, history.shares, rebalance=history.rebalance)
    result = hint(steps, rule, division, optimisers=history.optimisers)
    return None if result is None else m.RuleHint(rule=result.rule, saved=round(result.saved, 3))


def _event(event: TimelineEvent) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(event).items() if value is not None}
    return {"at": fields.pop("at"), "what": event.what} | fields
