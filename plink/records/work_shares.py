"""Who waited for whom in an iteration, from what hosts computed and waited."""

from collections.abc import Mapping
from dataclasses import dataclass

Work = Mapping[str, tuple[float, float, int]]  # by host: seconds computed and waited by a mean worker, and steps
_SLOW = 1.1  # times the median time of a step
_NAMED_HOSTS = 3


@dataclass(frozen=True)
class WorkShares:
    """Shares of time in one iteration.

    ``waited``: of the time of all, 0 to 1. ``bsp``: what it would have been if all had waited after each step.
    ``by_host``: of each host. ``slowest``: hosts whose steps took a tenth longer than others', for which these waited.
    """

    waited: float
    bsp: float
    by_host: Mapping[str, float]
    slowest: tuple[str, ...]


def work_shares(work: Work) -> WorkShares | None:
    """Return shares; None where nothing was measured."""
    step_s = {host: compute_s / max(1, steps) for host, (compute_s, _, steps) in work.items() if compute_s > 0}
    if not step_s:
        return None
    computed = sum(compute_s for compute_s, _, _ in work.values())
    waited = sum(waited_s for _, waited_s, _ in work.values())
    most_s = max(step_s.values())
    median_s = sorted(step_s.values())[(len(step_s) - 1) // 2]
    return WorkShares(
        waited / (computed + waited),
        1 - sum(step_s.values()) / (len(step_s) * most_s),
        {host: waited_s / (compute_s + waited_s or 1.0) for host, (compute_s, waited_s, _) in work.items()},
        tuple(host for host, seconds in step_s.items() if seconds > _SLOW * median_s),
    )


def work_sentence(work: Work, iteration: int) -> str | None:
    """Return a line for a person; None where nobody is slow, and nobody did more steps than others."""
    shares = work_shares(work)
    if shares is None:
        return None
    steps = {host: count for host, (_, _, count) in work.items()}
    names = ", ".join(shares.slowest[:3]) + ("..." if len(shares.slowest) > 3 else "")
    if len(set(steps.values())) > 1:
        fewest, most = min(steps.values()), max(steps.values())
        slow = [host for host in steps if steps[host] == fewest]
        return (
            f"iteration {iteration}: {fewest} steps of {', '.join(slow[:3])}{'...' * (len(slow) > 3)}, up to {most} of "
            f"others; waited {shares.waited:.0%} (bsp would {shares.bsp:.0%})"
        )
    return f"iteration {iteration}: waited {shares.waited:.0%}, for {names}" if names else None


def help_sentence(moved: float, helped: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return a line for a person; None where nobody was helped.

    :param moved: share of all work that was done for others. :param helped: of each host's, by helping host.
    """
    shares = sorted(((sum(helpers.values()), host) for host, helpers in helped.items()), reverse=True)
    if not shares:
        return None
    texts = [f"{share:.1%} of {host}'s by {', '.join(sorted(helped[host]))}" for share, host in shares[:_NAMED_HOSTS]]
    return f"helpers did {moved:.1%} of the work: {'; '.join(texts)}{'; ...' * (len(shares) > _NAMED_HOSTS)}"
