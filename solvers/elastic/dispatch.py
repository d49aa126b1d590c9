"""Registry of handlers: an answer goes to the handler of its request's purpose, a timer to that of what is due.

A purpose is a frozen dataclass that is declared beside its handler, in the module whose sub-state it belongs to.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import ValidationError

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import Result, method_of_type, result_of
from solvers.elastic.context import Context
from solvers.elastic.events import HostsLost
from solvers.elastic.state import omit

_OnAnswer = TypeVar("_OnAnswer", bound=Callable[[Context, Any, Answer, Result | None], None])
_OnTimer = TypeVar("_OnTimer", bound=Callable[[Context, Any], None])

_on_answer: dict[type, Callable[[Context, Any, Answer, Result | None], None]] = {}
_on_timer: dict[type, Callable[[Context, Any], None]] = {}


def on_answer(purpose: type) -> Callable[[_OnAnswer], _OnAnswer]:
    """Register the decorated function for answers to requests with this purpose."""

    def register(handler: _OnAnswer) -> _OnAnswer:
        assert purpose not in _on_answer, f"{purpose.__name__} has a handler already"
        _on_answer[purpose] = handler
        return handler

    return register


def on_timer(due: type) -> Callable[[_OnTimer], _OnTimer]:
    """Register the decorated function for timers of this type."""

    def register(handler: _OnTimer) -> _OnTimer:
        assert due not in _on_timer, f"{due.__name__} has a handler already"
        _on_timer[due] = handler
        return handler

    return register


def answered(ctx: Context, host: int, answer: Answer) -> None:
    """Handle an answer; one that no request waits for changes nothing. A host whose result is invalid is lost."""
    request = ctx.state.requests.get(answer.id)
    if request is None or request.host != host:
        return
    result: Result | None = None
    if answer.error is None:
        try:
            result = result_of(request.method, answer.result)
        except ValidationError as error:
            text = f"invalid answer to {method_of_type(request.method)}: {error}"
            ctx.emit(HostsLost((host,), text))
            return
    ctx.state.requests = omit(ctx.state.requests, answer.id)
    _on_answer[type(request.purpose)](ctx, request.purpose, answer, result)


def run_next_timer(ctx: Context) -> bool:
    """Handle the timer that is due first; False if none is due."""
    timers = ctx.state.timers
    if not timers or timers[0].at_s > ctx.now:
        return False
    ctx.state.timers = timers[1:]
    _on_timer[type(timers[0].due)](ctx, timers[0].due)
    return True
