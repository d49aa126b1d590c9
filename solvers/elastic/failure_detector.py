"""Failure detection by heartbeats, for a controller that may itself have been held up.

Seconds count only while the controller listens: what it did not receive because it, or the supervisor between it and
the hosts, stood still is no host's fault. So a step of the clock counts for as much as a listener may sleep at most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solvers.elastic.state import FailureDetector

_MAX_STEP_S = 0.3
_TOGETHER_S = 0.6  # two heartbeats
_MAJORITY_FACTOR = 6
_MIN_MAJORITY_HOSTS = 2


def pass_time(detector: FailureDetector, now: float) -> FailureDetector:
    """Advance the listening time: the supervisor was connected at ``now`` by the machine's clock."""
    last = detector.last_event_s
    passed = 0.0 if last is None else min(_MAX_STEP_S, max(0.0, now - last))
    return replace(detector, last_event_s=now, now_s=detector.now_s + passed)


def message_received(detector: FailureDetector, host: int) -> FailureDetector:
    """Note a message of a host."""
    return replace(detector, last_heartbeat_s={**detector.last_heartbeat_s, host: detector.now_s})


def silent(detector: FailureDetector, hosts: Iterable[int], timeout_s: float) -> list[int]:
    """Return the hosts that are as good as gone.

    Where most of them are silent at once it is more likely that something lies between them and here, or that this
    machine is overrun: they get :data:`_MAJORITY_FACTOR` times as long.
    """
    silences = {host: detector.now_s - detector.last_heartbeat_s.get(host, 0.0) for host in hosts}
    quiet = [host for host, silence in silences.items() if silence > timeout_s]
    if len(silences) > _MIN_MAJORITY_HOSTS and 2 * len(quiet) > len(silences):
        return [host for host in quiet if silences[host] > _MAJORITY_FACTOR * timeout_s]
    return [] if _may_grow(silences, timeout_s) else quiet


def _may_grow(silences: Mapping[int, float], timeout_s: float) -> bool:
    """Return whether hosts that may have fallen silent together are about to time out.

    A rack that is lost takes all of its hosts, whose last heartbeats differ by an interval.
    """
    longest = max(silences.values(), default=0.0)
    nearly = any(longest - _TOGETHER_S < silence <= timeout_s for silence in silences.values())
    return nearly and longest < timeout_s + _TOGETHER_S
