"""The log of arbiters in a run's notes, and the same events decided again."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from plink.model.transfers import arbiter

_MARK = "arbiter: "


def replayed(lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What the log of each host says that its arbiter decided, and what comes of the same events now."""
    by_host: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if _MARK in line:
            host, entry = line.split(_MARK)
            by_host.setdefault(host.split()[-1] if host else "", []).append(json.loads(entry))
    for entries in by_host.values():
        for entry in entries:
            if "bound" in entry:  # another arbiter
                state = arbiter.start(entry["bound"], [entry["bytes_s"]], entry["at"])
                continue
            kind, *fields = entry["event"]
            event = getattr(arbiter, kind)(*fields)
            state, answers = arbiter.step(replace(state, version=entry["version"]), event, entry["at"])
            grants = [answer for answer in answers if isinstance(answer, arbiter.Transfer)]
            granted = {str(grant.number): [member.worker for member in grant.members] for grant in grants}
            dropped = [answer.worker for answer in answers if isinstance(answer, arbiter.DropUpdate)]
            logged = {"granted": entry["granted"], "dropped": entry["dropped"]}
            yield logged, {"granted": granted, "dropped": dropped}
