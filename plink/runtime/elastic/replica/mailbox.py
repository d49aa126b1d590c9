"""Actor thread: all changes to what it owns go through its mailbox. While it is idle, other threads may read what it
owns in its place."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from plink.runtime.elastic.partition.partition import RejectedRequest

Result = TypeVar("Result")
Argument = TypeVar("Argument")
ReplyBox = SimpleQueue[Any]


class RaisedResult:
    """An exception that a request raised, as its result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ActorThread:
    """Thread with a mailbox: all requests to what it owns go through one queue.

    :param do: one request; the result goes into the box, some time. It does not raise.
    :param due: seconds until ``overdue`` is to be done if no request comes before; None: it need not.
    :param ended: is called when the thread ends, to answer what is left.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Any, ReplyBox], None],
        due: Callable[[], float | None],
        overdue: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._do, self._due, self._overdue, self._ended = do, due, overdue, ended
        self._queue: SimpleQueue[tuple[Any, ReplyBox]] = SimpleQueue()
        self._closing, self._closed = threading.Lock(), False
        self._state_lock = threading.Lock()  # held by whoever looks at what is owned
        self.idle = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self, request: Any) -> Any:
        """Return the result of a request, from any thread.

        :raises RejectedRequest: the thread has ended. Raises what the request does.
        """
        box: ReplyBox = SimpleQueue()
        with self._closing:  # nothing is put behind the end, where nobody would answer it
            if self._closed:
                raise RejectedRequest("the server is closed")
            self._queue.put((request, box))
        result = box.get()
        if isinstance(result, RaisedResult):
            raise result.error
        return result

    def run_inline(self, read: Callable[[Argument], Result], at: Argument) -> Result | None:
        """Run a read in the calling thread, because handing it to another thread and back takes longer than the read.
        None where the actor's thread is busy, which comes first, or has ended."""
        if not self.idle or not self._queue.empty() or not self._state_lock.acquire(blocking=False):
            return None
        try:
            return None if self._closed else read(at)
        finally:
            self._state_lock.release()

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
            with self._state_lock:
                self._do(request, box)
