"""Objects as text that every reader of Kubernetes takes for the same: YAML 1.1 and 1.2, and its own ``$(NAME)``."""

import json
import re
from collections.abc import Sequence
from typing import Any

# What no version of YAML takes for anything but text: no number, date, yes or no.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*([./-][A-Za-z0-9]+)*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def escaped(text: str) -> str:
    """The text as it has to stand in ``command``, ``args`` and ``env``.

    Kubernetes reads ``$(NAME)`` as a variable there, and ``$$`` as one ``$`` (reference of Container, "args").
    """
    return text.replace("$", "$$")


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """One document an object."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes what a reader might take for a number, a date, yes or no; texts of several lines stand as they are."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        style = "|" if value.endswith("\n") and value.count("\n") > 1 else None if plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump_all(
        objects, Dumper=Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=1 << 20
    )


def as_json(objects: Sequence[dict[str, Any]]) -> str:
    """One ``List``, as ``kubectl get -o json`` prints it and ``kubectl apply`` takes it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"
