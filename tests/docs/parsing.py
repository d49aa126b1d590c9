"""Check a command of the documentation by the command line's own parser, without running it.

Values that the parser takes for text are read by the code that uses them.
"""

from collections.abc import Callable
from typing import Any

from plink.cli.app import command
from plink.errors import PlinkError
from plink.model.units import parse_bytes, parse_duration, parse_rate


def refusal(words: list[str]) -> str:
    """Return why the command line refuses these words (after ``plink``), or an empty text."""
    if words[:1] == ["--debug"]:
        words = words[1:]
    node: Any = command()
    name, context = "plink", None
    try:
        while True:
            context = node.make_context(name, list(words), parent=context)
            if not hasattr(node, "commands"):
                if (requests_from := getattr(node.callback, "requests_from", None)) is not None:
                    requests_from(context.params)
                return _values(context.params)
            words = [*context._protected_args, *context.args]
            if not words:  # a group that lists something by itself (plink runs), or shows its help
                return ""
            name, node, words = node.resolve_command(context, words)
    except Exception as error:
        if type(error).__name__ == "Exit":  # --help, --version
            return ""
        return str(error.format_message()) if hasattr(error, "format_message") else f"{type(error).__name__}: {error}"


def _values(parameters: dict[str, Any]) -> str:
    for name, value in parameters.items():
        read = _READERS.get(name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if read is None or item is None:
                continue
            try:
                read(item)
            except PlinkError as error:
                return f"{name}: {error}"
    return ""


def _one_of(names: Any) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in names:
            raise PlinkError(f"{value} is none of {', '.join(names)}")

    return check


def _each(read: Callable[[str], object]) -> Callable[[str], None]:
    """A size, or a range of sizes."""

    def check(value: str) -> None:
        for part in value.split(".."):
            read(part)

    return check


def _settings(value: str) -> None:
    from plink.features.launch.request import launch_settings

    launch_settings([value])


def _algo(value: str) -> None:
    from solvers.costs.by_name import NAMES

    _one_of(NAMES)(value)


def _backend(value: str) -> None:
    from solvers.costs.by_name import NAMES

    if not value.endswith((".json", ".json.gz")):
        _one_of((*NAMES, "auto"))(value)


def _format(value: str) -> None:
    from runners.hostfiles import format_named

    format_named(value)


def _preemption_source(value: str) -> None:
    from plink.runtime.elastic.host.preemption import parse_source

    parse_source(value)


_READERS: dict[str, Callable[[str], object]] = {
    "algo": _algo,
    "backend": _backend,
    "bandwidth_bytes": parse_bytes,
    "bandwidth_time": parse_duration,
    "budget": parse_duration,
    "checkpoint_every": parse_duration,
    "duration": parse_duration,
    "format": _format,
    "host_bandwidth": parse_rate,
    "host_rate": parse_rate,
    "method": _one_of(("stamp", "icmp", "tcp", "iperf3", "auto")),
    "model": _one_of(("latency", "alpha-beta", "contention", "auto", "thesis")),
    "preemption_source": _preemption_source,
    "objective": _one_of(("auto", "time", "sum", "bottleneck")),
    "rate": parse_rate,
    "settings": _settings,
    "size": _each(parse_bytes),
    "timeout": parse_duration,
    "uplink_rate": parse_rate,
    "within": parse_duration,
}
