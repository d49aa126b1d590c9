"""Keep ``torch.compile`` out of the backend's methods.

It looks at every Python function that runs below a compiled one, and ends with an error at members of a process group
that it does not know, as ours are. ``torch.compiler.disable`` does the same as this, and imports the compiler for it,
which takes seconds.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch._C import _dynamo

_eval_frame: Any = _dynamo.eval_frame


def untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method; neither it nor what it calls is traced."""

    @functools.wraps(method)
    def uncompiled(*arguments: Any, **options: Any) -> Any:
        previous = _eval_frame.set_eval_frame(None)
        try:
            return method(*arguments, **options)
        finally:
            _eval_frame.set_eval_frame(previous)

    call: Any = uncompiled
    if hasattr(_eval_frame, "skip_code"):  # of older versions of torch
        _eval_frame.skip_code(call.__code__)
    else:
        skip, default = _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
        _eval_frame.set_code_exec_strategy(call.__code__, _eval_frame._FrameExecStrategy(skip, default))
    call._torchdynamo_disable = True  # where a call of it would be traced
    return uncompiled
