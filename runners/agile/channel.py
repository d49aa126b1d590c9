"""What a controller says to hosts, and what becomes of their answers: nothing here waits."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from runners.agile.node_words import ill_answered

Answer = dict[str, Any]
GONE = "Gone"


class Channel:
    """To all hosts of a job, by number.

    :param write: takes a message on its way to the hub. :param by: the number of this controller, greater than any
        before it. :param nonsense: is told of a host whose answer makes no sense, and why; it is as good as gone.
    """

    def __init__(
        self, write: Callable[[dict[str, Any]], None], by: int, nonsense: Callable[[int, str], None] | None = None
    ) -> None:  # fmt: skip
        self.by = by
        self._write = write
        self._nonsense = nonsense or (lambda host, why: self.gone(host))
        self._ids = itertools.count(by << 32)  # or an answer to the controller before would be taken for one
        self._asked: dict[int, tuple[int, str, Callable[[Answer], None]]] = {}
        self.latest = -1  # question that was asked

    def tell(self, host: int, do: str, then: Callable[[Answer], None] | None = None, **fields: Any) -> None:
        """:param then: gets the answer, whose ``why`` is None where it was done; of kind ``Gone`` if the host is."""
        message = {"to": host, "do": do, "by": self.by, **fields}
        if then is not None:
            message["id"] = self.latest = next(self._ids)
            self._asked[message["id"]] = host, do, then
        self._write(message)

    def tell_all(self, hosts: Iterable[int], do: str, **fields: Any) -> None:
        """The same to several, without answers."""
        for host in hosts:
            self.tell(host, do, **fields)

    def answered(self, host: int, message: Answer) -> None:
        """An answer has come."""
        if self._asked.get(message["id"], (None,))[0] == host:
            _, do, then = self._asked[message["id"]]
            if message["why"] is None and (why := ill_answered(do, message)):
                self._nonsense(host, f"what it answered makes no sense: {why}")
                return
            del self._asked[message["id"]]
            then(message)

    def gone(self, host: int) -> None:
        """It will answer nothing any more."""
        for number, (asked, _, then) in list(self._asked.items()):
            if asked == host and number in self._asked:
                del self._asked[number]
                then({"id": number, "why": "the host is gone", "kind": GONE})
