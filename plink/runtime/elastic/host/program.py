"""A user's program, from its file: one that defines ``make(arguments)``, which gives the app (Harlap thesis, 4.2.1)."""

from collections.abc import Sequence
from typing import Any

from plink.elastic.app import App, check_app
from plink.errors import InputError
from plink.runtime.users_file import EXAMPLE, make_from_file


def load_app(path: str, arguments: Sequence[str]) -> App[Any]:
    """Load the app of a file with these arguments; ``make`` may also return a tuple with the app in front.

    :raises InputError: there is no such file, it cannot be run, or it gives no app.
    """
    app = make_from_file(path, arguments)
    if not isinstance(app, App):
        raise InputError(path, f"make() gave {type(app).__name__}, which is no App: {EXAMPLE}")
    check_app(app)
    return app
