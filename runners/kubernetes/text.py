"""Objects as text that YAML 1.1, YAML 1.2 and Kubernetes' own ``$(NAME)`` read the same way."""

import json
import re
from collections.abc import Sequence
from typing import Any

# Text in every version of YAML: no number, date, yes or no.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*([./-][A-Za-z0-9]+)*")
_YAML_KEYWORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def escaped(text: str) -> str:
    """Return a text as it has to be in ``command``, ``args`` and ``env``.

    Kubernetes reads ``$(NAME)`` as a variable there, and ``$$`` as one ``$`` (reference of Container, "args").
    """
    return text.replace("$", "$$")


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """Return one YAML document an object."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Dumper that quotes what might be read as a number, a date, yes or no; texts of several lines are literal."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _YAML_KEYWORDS
        style = "|" if value.endswith("\n") and value.count("\n") > 1 else None if plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump_all(
        objects, Dumper=Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=1 << 20
    )


def as_json(objects: Sequence[dict[str, Any]]) -> str:
    """Return one ``List``, as ``kubectl get -o json`` prints it and ``kubectl apply`` takes it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"
