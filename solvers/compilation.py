"""Compiled functions (Numba), and a callback for who waits while they are compiled.

Numba compiles a function when it is first called, which takes seconds, and caches the result on the machine. Numba
itself is imported by the first module that has such a function.

Compiled code holds what it calls and the constants of its module. Numba compiles it anew where its own file changed,
not where another one did that it imports from: after an upgrade it would go on with old code.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
CompilationCallback = Callable[[bool], None]
_callbacks: list[CompilationCallback] = []
_subscriptions: list[Any] = []  # Numba's listener, once Numba is imported
_compiled_s = 0.0  # seconds spent so far, but for what is being compiled
_since: float | None = None  # when the present compilation began


def njit(**options: Any) -> Callable[[Function], Function]:
    """Compile a function with ``numba.njit`` and its options."""
    import numba

    if not _subscriptions:
        _subscriptions.append(_subscription())
    jit: Any = numba.njit  # its type stubs lack some options
    compile_: Callable[[Function], Any] = jit(**{"no_cfunc_wrapper": True, **options})

    def decorate(function: Function) -> Function:
        dispatcher = compile_(function)
        _stamp_with_imports(dispatcher, getattr(function, "__globals__", {}))
        for_types = dispatcher.get_call_template

        def for_types_of_values(args: Any, keywords: Any) -> Any:
            # Numba compiles a function once more for each constant that an argument begins as (`used = 0`), and then
            # drops that.
            return for_types(tuple(map(numba.types.unliteral, args)), keywords)

        dispatcher.get_call_template = for_types_of_values
        return cast(Function, dispatcher)

    return decorate


def njit_inner(**options: Any) -> Callable[[Function], Function]:
    """Compile a function that only compiled code calls, without the wrappers that let Python call it."""
    return njit(**{"cache": True, "no_cpython_wrapper": True, **options})


def njit_borrowing(**options: Any) -> Callable[[Function], Function]:
    """Compile a function that compiled code calls and that makes no arrays of its own.

    It counts no references. Counting took half of the time of loops whose steps get tuples of many arrays.
    """
    return njit_inner(**{"_nrt": False, **options})


def _stamp_with_imports(dispatcher: Any, names: dict[str, Any]) -> None:
    """Have a cached function compiled anew where functions and constants among the names of its module changed."""
    if (cache := getattr(dispatcher._cache, "_cache_file", None)) is None:
        return
    used = []
    for name, value in sorted(names.items()):
        if isinstance(value, type(dispatcher)):
            used.append((name, getattr(getattr(value._cache, "_cache_file", None), "_source_stamp", None)))
        elif isinstance(value, int | float | str) and not name.startswith("__"):
            used.append((name, repr(value)))
    cache._source_stamp = hashlib.sha256(repr((cache._source_stamp, used)).encode()).digest()


def watch_compilation(callback: CompilationCallback) -> Callable[[], None]:
    """Call ``callback`` with True when a function begins to be compiled, and with False when all are.

    Functions that Numba finds in its cache do not count. Calls come from the threads that compile, one at a time.

    :returns: what ends that.
    """
    _callbacks.append(callback)
    return lambda: _callbacks.remove(callback)


def search_clock() -> float:
    """Seconds of :func:`time.monotonic` in which nothing was compiled.

    By it the first search on a machine gets all of its time, and finds what later ones find.
    """
    now = time.monotonic()
    return now - _compiled_s - (0.0 if _since is None else now - _since)


def _subscription() -> Any:
    """Return a listener to Numba's compiler, registered; it counts functions that are compiled for others."""
    from numba.core import event

    register: Any = event.register

    class Compilations(event.Listener):
        depth = 0

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                _count(True)
                _notify(True)

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                _count(False)
                _notify(False)

    listener = Compilations()
    register("numba:compile", listener)
    return listener


def _count(compiling: bool) -> None:
    global _compiled_s, _since
    now = time.monotonic()
    _compiled_s += 0.0 if _since is None else now - _since
    _since = now if compiling else None


def _notify(begins: bool) -> None:
    for callback in list(_callbacks):
        callback(begins)
