"""Jobs for tests, and a plain simulator of them to compare with: no heaps, all rates worked out anew at every event."""

from dataclasses import dataclass, field

import numpy as np

from solvers.simulation.job import CapacityChanges, Resources, Tasks

_CLOSE = 1e-12


@dataclass
class Task:
    """One task; ``after`` holds the numbers of tasks that it waits for."""

    route: int = 0
    amount: float = 0.0
    lead_us: float = 0.0
    lag_us: float = 0.0
    after: list[int] = field(default_factory=list)
    queue: int = -1
    priority: int = 0


def tasks(*rows: Task) -> Tasks:
    """The tasks as the simulator takes them."""
    offsets = np.cumsum([0, *(len(row.after) for row in rows)])
    return Tasks(
        np.array([row.route for row in rows], dtype=np.int64),
        np.array([row.amount for row in rows]),
        np.array([row.lead_us for row in rows]),
        np.array([row.lag_us for row in rows]),
        (offsets.astype(np.int64), np.array([k for row in rows for k in row.after], dtype=np.int64)),
        np.array([row.queue for row in rows], dtype=np.int64),
        np.array([row.priority for row in rows], dtype=np.int64),
    )


def resources(capacity: list[float], routes: list[list[int]], limit: list[float] | None = None) -> Resources:
    """Resources with routes of any length."""
    longest = max(map(len, routes))
    padded = np.array([route + [-1] * (longest - len(route)) for route in routes], dtype=np.int64)
    return Resources(np.array(capacity, dtype=float), padded, np.array(limit or [np.inf] * len(routes), dtype=float))


def max_min_rates(capacity: list[float], routes: list[list[int]], limits: list[float]) -> list[float]:
    """Progressive filling: raise all rates together, stop those whose link is full or whose limit is reached."""
    rates = [0.0] * len(routes)
    rising = set(range(len(routes)))
    while rising:
        steps = [limits[f] - rates[f] for f in rising]
        for link, most in enumerate(capacity):
            on = [f for f in rising if link in routes[f]]
            if on:
                used = sum(rates[f] for f in range(len(routes)) if link in routes[f])
                steps.append((most - used) / len(on))
        step = max(0.0, min(steps))
        if step == np.inf:
            return [np.inf if f in rising else rate for f, rate in enumerate(rates)]
        for f in rising:
            rates[f] += step
        full = {
            link for link, most in enumerate(capacity)
            if sum(rates[f] for f in range(len(routes)) if link in routes[f]) >= most * (1 - _CLOSE)
        }  # fmt: skip
        rising -= {f for f in rising if full & set(routes[f]) or rates[f] >= limits[f] * (1 - _CLOSE)}
    return rates


def plain_ends(network: Resources, rows: list[Task], changes: CapacityChanges) -> list[float]:
    """When each task is complete, by simulating one event after the other."""
    capacity = network.capacity.tolist()
    routes = [[link for link in route if link >= 0] for route in network.routes.tolist()]
    pending = [set(row.after) for row in rows]
    state, timer, remaining = ["waiting"] * len(rows), [np.inf] * len(rows), [row.amount for row in rows]
    busy: set[int] = set()
    ends, now, change = [np.inf] * len(rows), 0.0, 0
    while True:
        moved = True
        while moved:
            moved = False
            for task, row in enumerate(rows):
                if state[task] == "lagging" and timer[task] <= now:
                    state[task], ends[task], moved = "done", now, True
                    for others in pending:
                        others.discard(task)
                elif state[task] == "leading" and timer[task] <= now:
                    state[task], timer[task], moved = "flowing", np.inf, True
                elif state[task] == "flowing" and remaining[task] <= _CLOSE * row.amount:
                    state[task], timer[task], moved = "lagging", now + row.lag_us, True
                    busy.discard(row.queue)
            for task in sorted(range(len(rows)), key=lambda task: (rows[task].priority, task)):
                row = rows[task]
                if not moved and state[task] == "waiting" and not pending[task] and row.queue not in busy:
                    state[task], timer[task], moved = "leading", now + row.lead_us, True
                    busy |= {row.queue} if row.queue >= 0 else set()
                    break
        if all(word == "done" for word in state):
            return ends
        flowing = [task for task, word in enumerate(state) if word == "flowing"]
        used = [rows[task].route for task in flowing]
        rates = max_min_rates(capacity, [routes[r] for r in used], [float(network.limit[r]) for r in used])
        finish = [
            now + (remaining[task] / rate if rate > 0 else np.inf) for task, rate in zip(flowing, rates, strict=True)
        ]
        coming = float(changes.at_us[change]) if change < len(changes.at_us) else np.inf
        upcoming = min(
            [*finish, *(timer[task] for task in range(len(rows)) if state[task] in ("leading", "lagging")), coming]
        )
        assert upcoming < np.inf, "nothing can happen any more"
        for task, rate, end in zip(flowing, rates, finish, strict=True):
            close = end <= upcoming * (1 + _CLOSE)
            remaining[task] = 0.0 if close else remaining[task] - (rate * (upcoming - now) if rate < np.inf else 0.0)
        now = upcoming
        while change < len(changes.at_us) and changes.at_us[change] <= now:
            capacity[int(changes.resource[change])] = float(changes.capacity[change])
            change += 1
