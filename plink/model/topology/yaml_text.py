"""Read YAML with every scalar as text, as files of host names need it: ``no`` and ``1_0`` are names, too.

Read by PyYAML, without what a file of names has no use for: tags, and aliases, by which a short text can stand for any
amount of memory.
"""

from typing import Any

import yaml

from plink.errors import InputError

_MAX_DEPTH = 16


class _Loader(yaml.BaseLoader):
    """YAML loader that refuses aliases, tags, repeated keys and deep nesting."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or tag not in (None, "!"):
            raise yaml.MarkedYAMLError(problem="anchors, aliases and tags are not read", problem_mark=event.start_mark)
        if self._depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(node.value):
            raise yaml.MarkedYAMLError(problem="a key that comes twice, or is no text", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        return None if node.value == "" and node.style is None else super().construct_scalar(node)


def parse_yaml(text: str, location: str) -> Any:
    """Parse lists, dicts with text keys, and texts; None for empty values.

    :raises InputError: naming the first line that is wrong or is not read.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # it makes nothing but lists, dicts and texts
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise InputError(f"{location}{line}", f"no YAML that plink reads: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(location, f"no YAML that plink reads: {str(error).splitlines()[0]}") from None
