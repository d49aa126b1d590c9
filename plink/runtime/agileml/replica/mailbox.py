"""A thread that something belongs to: all who want it changed put their requests in its queue. While that thread has
nothing to do, others may look at what it owns in its place."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from plink.runtime.agileml.partition.partition import Refused

Result = TypeVar("Result")
Given = TypeVar("Given")
Box = SimpleQueue[Any]


class Failed:
    """A result that is an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class OwnThread:
    """Of a name.

    :param do: one request; the result goes into the box, some time. It does not raise.
    :param due: seconds until ``overdue`` is to be done if no request comes before; None: it need not.
    :param ended: what is left to be said when the thread ends.
    """

    def __init__(
        self, name: str, do: Callable[[Any, Box], None], due: Callable[[], float | None],
        overdue: Callable[[], None], ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._do, self._due, self._overdue, self._ended = do, due, overdue, ended
        self._queue: SimpleQueue[tuple[Any, Box]] = SimpleQueue()
        self._closing, self._closed = threading.Lock(), False
        self._turn = threading.Lock()  # held by whoever looks at what is owned
        self.idle = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self, request: Any) -> Any:
        """Its result, from any thread. :raises Refused: the thread has ended. Raises what the request does."""
        box: Box = SimpleQueue()
        with self._closing:  # nothing is put behind the end, where nobody would answer it
            if self._closed:
                raise Refused("the server is closed")
            self._queue.put((request, box))
        result = box.get()
        if isinstance(result, Failed):
            raise result.error
        return result

    def meanwhile(self, look: Callable[[Given], Result], at: Given) -> Result | None:
        """In the thread that asks: to hand something small to another one and back takes longer than all the rest.
        None where the own thread has something to do, which comes first, or has ended."""
        if not self.idle or not self._queue.empty() or not self._turn.acquire(blocking=False):
            return None
        try:
            return None if self._closed else look(at)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the thread; what is in its queue is answered first."""
        with self._closing:
            self._closed = True
            self._queue.put((None, SimpleQueue()))
        self._thread.join()

    def _run(self) -> None:
        while True:
            timeout = self._due()
            try:
                if timeout is not None and timeout <= 0:
                    raise Empty
                self.idle = True
                request, box = self._queue.get(timeout=timeout)
            except Empty:
                request, box = self._overdue, SimpleQueue()
            self.idle = False
            if request is None:
                self._ended()
                return
            with self._turn:
                self._do(request, box)
