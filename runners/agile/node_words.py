"""What nodes (:mod:`plink.runtime.agileml.node`) say to the controller of their job, and what they answer."""

from collections.abc import Mapping
from typing import Any, cast

from plink.remote.words import (
    Fits,
    Words,
    amount,
    by_number,
    flag,
    ill,
    many,
    maybe,
    record,
    row,
    some,
    text,
    whole,
)  # fmt: skip


def count(value: object) -> bool:
    """One or more."""
    return whole(value) and cast(int, value) > 0


_BYTES = ("asked_sent", "asked_received", "served_sent", "served_received")
_CARRIED = record(**dict.fromkeys(_BYTES, whole))
_SAVED = record(clock=whole, partitions=whole, folder=text)

NODE_WORDS = Words(
    {
        "hello": {},  # of any version: see runners.agile.fitting
        "alive": {"carried": _CARRIED},
        "notice": {"seconds": amount, "why": text},
        "failed": {"why": text},
        "said": {"text": text},
        "answer": {"id": whole, "why": maybe(text)},
        "partitions": {"partitions": by_number(row(text, whole, whole, whole, whole))},
        "clock": {
            "clock": whole, "iteration": whole, "batches": count,
            "seconds": amount, "leads": flag, "judged": maybe(whole),
            "objective": lambda value: value is None or type(value) in (int, float),  # a sum may be infinite
            "era": whole,
        },
        "finished": {"worker": whole, "clock": whole, "stood_in": flag, "told": flag},
    },
    others=False,
)  # fmt: skip

HELLO: Mapping[str, Fits] = {
    "tables": whole, "pieces": count, "batches": count, "shapes": some(row(count, count)),
    "memory": maybe(amount), "pool": text,
}  # fmt: skip

_MAP = record(
    clock=whole, era=whole, everywhere=by_number(row(whole, many(whole), whole)), left=many(row(whole, whole))
)

_THRESHOLDS = record(measure=whole, worker=amount, active=amount, backup_only=amount)

_ANSWERS: Mapping[str, Mapping[str, Fits]] = {
    "begin": {
        "address": text, "unwritable": maybe(text), "unsaved": maybe(text), "saved": maybe(_SAVED),
        "own": maybe(_SAVED),
    },
    "hold": {"begun": whole},
    "take_part": {"elsewhere": many(row(whole, text))},
    "checkpoint": {"seconds": amount, "bytes": whole},
    "report": {
        "serves": by_number(whole), "backs": by_number(whole), "gave": by_number(whole),
        "era": whole, "number": whole, "loaded": many(whole),
        "map": lambda value: value == {} or _MAP(value), "address": text, "workers": by_number(many(whole)),
        "stands_in": by_number(whole), "begun": whole, "finished": by_number(whole), "held": flag,
        "saved": maybe(_SAVED), "own": maybe(_SAVED), "carried": _CARRIED,
        "thresholds": lambda value: value == {} or _THRESHOLDS(value),
    },
}  # fmt: skip


def ill_answered(do: str, answer: Mapping[str, Any]) -> str | None:
    """What is wrong with the answer to a word that was obeyed, for a person; None: nothing."""
    return ill(do, _ANSWERS.get(do, {}), answer)
