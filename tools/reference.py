"""Write the reference of every command, as the command line describes itself: ``make reference``.

Two things are written here: exit codes beyond those of all commands, and what an example needs to run (see
tests/docs/pages.py). A test compares docs/reference.md with the output.
"""

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from plink.cli.verbosity import PANEL

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"

_HEAD = """\
# Reference: every command

Made from the command line itself by `make reference`; `plink COMMAND --help` says the same. A size is written like
`100MB`, a time like `250ms`, `2s`, `5m`, a rate like `200mbit`. `-` as a file is standard input or output.

Every command takes `-v` (print more details), `-q` (print only results and errors) and `--debug` (show the traceback
of an error), before its name or after it. `plink --version` prints the version; `--install-completion` completes
commands in your shell.

### Defaults from a file

Put options that you always use into `plink.toml`, or below `[tool.plink]` of `pyproject.toml`, in your working folder.
Without one there, plink reads `~/.config/plink/plink.toml` (`$XDG_CONFIG_HOME`). `plink --config FILE COMMAND ...`
reads another file, `/dev/null` none. Write a table for each command, a key for each
option. Typed options win: they replace the file's value, `--no-NAME` undoes a flag of the file (`--no-json`), and plink
drops a value of the file that excludes a typed option (`max-moves` beside a typed `--time-limit`).

```toml
[probe]
count = 1000
shared-links = false

[reorder]
algo = "bcube"
set = ["base=4"]
```

plink refuses an unknown key or a wrong value, with the file and the line, and two options of the file that exclude each
other. Unless `--config` names the file, plink also refuses one that belongs to another user or that its group or others
may write. A note says when a file is used. `plink submit` queues the options as they are when you call it.

A file in your working folder may have come with a clone. It cannot set what runs (`python`, `workdir`, `sync`, `image`,
`pipeline`, `launcher-args`, `spot`), with which variables (`env`), where (`hosts`, `order`, `listen`,
`accept-new-host-keys`) or for how much money (`per-hour`; `budget` of spot machines): plink refuses it. Type them, name
the file with `--config`, or put them into your own file.

### Exit codes

| exit code | all commands |
|---|---|
| 0 | done |
| 1 | failed (a host, a file that cannot be written, a rank), or a check has findings (`doctor`, `diff`, `check`) |
| 2 | the command line or a file is invalid |
| 3 | partly done: the missing part is named |
| 4 | no answer exists |
| 130 | Ctrl-C; 128 + N for another signal |

Errors are one line on standard error. `--json` prints the result on standard output, in a [documented
format](formats.md).
"""

# Beyond those of all commands, or what they mean here.
_CODES = {
    "probe": "3: pairs are missing; `--resume` continues",
    "doctor": "1: findings of the severity of `--fail-on` or above",
    "embed": "3: hosts without measurements are omitted; 4: too little was measured",
    "cluster": "3: hosts without measurements are omitted; 4: too little was measured",
    "reorder": "3: no proof by `--prove`, or the order needs unmeasured pairs; 4: nothing was measured",
    "check": "1: a limit is missed; 4: orders are indistinguishable, or too few for a limit",
    "diff": "1: something got worse; 4: there is nothing to compare",
    "launch": "that of the first rank that failed (128 + N where signal N ended it); 124: `--timeout`",
    "elastic run": "that of the job; 124: `--timeout`",
    "runs rerun": "as `plink launch`",
    "schedule verify": "1: the schedule is wrong",
    "runs replay": "1: its decisions differ from the log",
    "lab exec": "that of the command",
}
_NEEDS = {
    "check": "cluster",
    "compare": "cluster",
    "demo": "prepared",
    "doctor": "cluster",
    "elastic": "prepared",
    "elastic run": "cluster",
    "lab": "prepared",
    "launch": "cluster",
    "pipeline assess": "cluster",
    "plink": "cluster",
    "probe": "cluster",
    "reflector": "terminal",
    "runs": "prepared",
    "spot drive": "cluster",
    "spot release": "cluster",
    "spot status": "cluster",
    "submit": "cluster",
}
_MIN_COMMON_COMMANDS = 3
_COMMON = """\
### Common options

Arguments and options that mean the same in several commands; each command's section names those that it has. A value
in parentheses is the default.
"""
_VALUES = {"int": "N", "float": "X", "str": "TEXT", "Path": "FILE"}


def reference() -> str:
    """Return the page."""
    from plink.cli.app import command

    nodes = list(_commands(command(), []))
    links = ", ".join(f"[`{' '.join(words)}`](#plink-{'-'.join(words)})" for words, _ in nodes)
    common = _common_items([node for _, node in nodes])
    return "\n".join(
        [
            _HEAD,
            *_wrapped(f"Commands: {links}."),
            "",
            _COMMON,
            *sorted(common, key=lambda row: row.lstrip("- `[")),
            "",
            "\n".join(_section(words, node, common) for words, node in nodes),
        ]
    )


def _common_items(nodes: list[Any]) -> list[str]:
    """Return the list items that several commands have, one for each name: the most frequent."""
    counts = Counter(entry for node in nodes for entry in (_arguments(node) | _options(node)).items())
    by_name = {name: row for (name, row), count in reversed(counts.most_common()) if count >= _MIN_COMMON_COMMANDS}
    return list(by_name.values())


def _arguments(node: Any) -> dict[str, str]:
    """Return the list item of each argument, by what the usage line says."""
    entries = [entry for entry in node.params if entry.param_type_name == "argument"]
    return {_place(entry): _item(f"`{_place(entry)}`", "", entry.help or "") for entry in entries}


def _options(node: Any) -> dict[str, str]:
    """Return the list item of each option that not every command has, by its longest name."""
    entries = [
        entry
        for entry in node.params
        if entry.param_type_name == "option" and not entry.hidden and entry.rich_help_panel != PANEL
    ]
    return {
        max(entry.opts, key=len): _item(_spelt(entry), _default(entry), f"{entry.help or ''}{_range(entry)}")
        for entry in entries
    }


def _item(name: str, default: str, text: str) -> str:
    text = " ".join(text.split())
    value = f" ({default})" if default else ""
    return "\n".join(_wrapped(f"- {name}{value}: {text}" if text else f"- {name}{value}", indent="  "))


def _commands(node: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    for name, child in node.commands.items():
        if child.hidden:
            continue
        yield [*words, name], child
        if hasattr(child, "commands"):
            yield from _commands(child, [*words, name])


def _paragraphs(node: Any) -> list[str]:
    """Return the help's paragraphs, each in one line, without its example."""
    text = re.split(r"\s*Example: ", node.help or "")[0]
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", ""))]


def _example(node: Any) -> str:
    match = re.search(r"Example: (.+?)(?:\n\s*\n|$)", node.help or "", re.DOTALL)
    return " ".join(match[1].split()) if match else ""


def _section(words: list[str], node: Any, common: list[str]) -> str:
    name = " ".join(words)
    arguments, options = _arguments(node), _options(node)
    usage = ["plink", name, "[OPTIONS]" if options else "", *arguments]
    usage += ["COMMAND ..."] if hasattr(node, "commands") else []
    lines = [f"## plink {name}", "", *_joined(_paragraphs(node)), f"Usage: `{' '.join(filter(None, usage))}`", ""]
    example = _example(node)
    if example:
        need = _NEEDS.get(name, _NEEDS.get(words[0], ""))
        lines += [f"<!-- needs: {need} -->", ""] if need else []
        lines += [f"    {example}", ""]
    entries = arguments | options
    own = [row for row in entries.values() if row not in common]
    lines += [*own, ""] if own else []
    shared = [f"`{key}`" for key, row in entries.items() if row in common]
    lines += [*_wrapped(f"[Common](#common-options): {', '.join(shared)}."), ""] if shared else []
    if name in _CODES:
        lines += [f"Exit codes: {_CODES[name]}.", ""]
    return "\n".join(lines)


def _joined(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield from _wrapped(paragraph)
        yield ""


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Return the text in lines of at most 120 columns, none of which ends within a code span."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = textwrap.wrap(whole, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _place(argument: Any) -> str:
    shown = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    shown = shown.replace("......", "...")
    return shown if argument.required else f"[{shown.strip('[]')}]"


def _spelt(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    if option.is_flag or option.is_bool_flag:
        return names + "".join(f", `{name}`" for name in option.secondary_opts)
    value = option.metavar or _choices(option) or _VALUES.get(_kind(option), "TEXT")
    *others, last = sorted(option.opts, key=len)
    return ", ".join([*(f"`{name}`" for name in others), f"`{last} {value}`"])


def _choices(option: Any) -> str:
    """Return the choices of an option, or an empty text."""
    kind = _annotated(option)
    return f"[{'|'.join(kind)}]" if isinstance(kind, type) and issubclass(kind, StrEnum) else ""


def _kind(option: Any) -> str:
    """Return the name of the annotated type."""
    return getattr(_annotated(option), "__name__", "str")


def _annotated(option: Any) -> Any:
    """Return the annotated type: the members' type of a list, the type itself of an optional one."""
    annotation = option.type_descriptor.annotation
    members = [entry for entry in getattr(annotation, "__args__", ()) if entry is not type(None)]
    return members[0] if members else annotation


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    if option.secondary_opts and value is not None:
        return f"`{option.opts[0] if value else option.secondary_opts[0]}`"
    if option.is_flag or value is None or value in ([], ()):
        return ""
    return f"`{value}`"


def _range(option: Any) -> str:
    if option.min is None and option.max is None:
        return ""
    if option.max is None or option.max >= 1 << 31:
        return f" At least {option.min}."
    return f" {option.min} to {option.max:.12g}."


if __name__ == "__main__":
    PAGE.write_text(reference())
    print(PAGE, file=sys.stderr)
