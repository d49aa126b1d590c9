"""Which method gets through to which host, tried before the rounds begin (``--method auto``)."""

from dataclasses import dataclass

from probes.again import measure_again
from probes.rounds import Circle, as_pairs
from probes.survey import Survey

ORDER = ("stamp", "icmp", "tcp")  # best first
_COUNT = 20
_PARTNERS = 3  # a host is given up for a method only after so many others could not reach it


@dataclass(frozen=True)
class Reach:
    """The best method that gets through to each host; hosts that nothing reaches have the last."""

    by_host: tuple[str, ...]
    summary: str

    def __call__(self, i: int, j: int) -> str:
        """The method for a pair: the less demanding of its two hosts'."""
        return ORDER[max(ORDER.index(self.by_host[i]), ORDER.index(self.by_host[j]))]


def reachable_by(survey: Survey) -> Reach:
    """Try the methods, best first, each on the hosts that no better one gets through to."""
    n = len(survey.found.hosts)
    best: dict[int, str] = {}
    for method in ORDER:
        for host in reached(survey, method, set(best)):
            best.setdefault(host, method)
    by_host = tuple(best.get(host, ORDER[-1]) for host in range(n))
    counted = ", ".join(f"{by_host.count(m)} hosts by {m}" for m in ORDER if m in by_host)
    return Reach(by_host, counted)


def reached(survey: Survey, method: str, done: set[int]) -> set[int]:
    """Hosts (those in ``done`` included) that the method gets through to.

    Each is tried in pairs with up to three others; whoever reached none of them, which may be their fault, once more
    with a host that answered.
    """
    there = [host for host in range(len(survey.found.hosts)) if host not in survey.conductor.gone]
    circle = Circle(len(there), seed=0)
    answered: set[int] = set()
    turns = min(_PARTNERS + len(there) % 2, len(circle))  # one more where each host may rest once
    for pairs in [as_pairs(circle[turn]) for turn in range(turns)]:
        known = done | answered
        new = [(there[a], there[b]) for a, b in pairs if not known >= {there[a], there[b]}]
        answered |= {host for pair in measure_again(survey, new, _COUNT, method) for host in pair}
    left = sorted(set(there) - done - answered)
    last = [(min(pair), max(pair)) for pair in zip(left, sorted(answered) * _PARTNERS, strict=False)]
    answered |= {host for pair in measure_again(survey, last, _COUNT, method) for host in pair}
    return done | answered
