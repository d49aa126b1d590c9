"""Draw the protocol of elastic jobs, from its types and from what simulated jobs really send, as a page.

``python -m tests.docs.elastic_protocol`` writes docs/elastic-protocol.md; a test holds the page against the types.
"""

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from plink.model.elastic.codec import VERSION
from plink.model.elastic.reports import MESSAGES
from plink.model.elastic.requests import REQUESTS, RESULTS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "elastic-protocol.md"

_HEAD = f"""# The protocol of elastic jobs

Messages between the controller of an elastic job and the nodes of its hosts, version {VERSION}. This page is written by
`python -m tests.docs.elastic_protocol`, from the types in `plink/model/elastic/`. What the parts do is in
[elastic.md](elastic.md).

```
 plink elastic        launching machine                                      each host
+-------------+      +------------+ events  +------------+      agent       +--------+
| status, add | ---> | supervisor | ------> | controller | ~~~ requests ~~> |  node  |
| evict ...   | <--- |  (a process)| <------ | step(...)  | <~~~ messages ~~ | server |
+-------------+      +------------+ commands+------------+                  | workers|
                           |  ^                                             +--------+
                           +--+---- lines of agents, over SSH ------------------^
```

- One JSON object a line. The supervisor passes requests on, and checks what nodes send.
- A node's first message is `hello`. A host of another version is refused before a request is sent to it.
- A request is `{{"method": ..., "params": {{...}}, "term": ..., "id": ...}}`. `term` is the number of the controller.
  A node refuses a request of an older term than it has seen. `id` is null where no answer is wanted.
- An answer is `{{"type": "answer", "id": ..., "error": ..., "kind": ..., "result": {{...}}}}`. `error` is null where
  the request was carried out, and `kind` is then empty.
- Both ends check every field. A node whose message is wrong is ended, and counts as failed. A node answers a wrong
  request with an error. Missing and unknown fields are wrong.

Messages in the order in which a job needs them, C for the controller and N for a node:

```
C -> N  begin                      every host; then mark_folder, check_folder where there are checkpoints
C -> N  open | restore             first state of a partition; add_replica: its replica
C -> N  load_shards                input data
C -> N  set_participants           barrier: which workers count from a clock on (pause before it, if workers run)
C -> N  assign_shards              who works on what; ends the pause
N -> C  clock, partitions, alive   progress, clocks of partitions, heartbeats
C -> N  replicate_up_to, truncate  rounds of replication
C -> N  prepare, commit            a partition moves; set_primaries tells all
C -> N  roll_back                  everybody back to a clock, in a new generation
N -> C  finished                   of workers; then write_result, bye
```

## Requests of the controller

| method | what a node does | params | result |
|---|---|---|---|
"""
_MIDDLE = """
## Messages of a node

| type | what it says | fields |
|---|---|---|
"""


def page() -> str:
    """Return the page's text."""
    requests = [
        f"| `{name}` | {_summary(kind)} | {_fields(kind)} | {_fields(RESULTS[kind]) if kind in RESULTS else ''} |"
        for name, kind in REQUESTS.items()
    ]
    messages = [f"| `{name}` | {_summary(kind)} | {_fields(kind)} |" for name, kind in MESSAGES.items()]
    return _HEAD + "\n".join(requests) + "\n" + _MIDDLE + "\n".join(messages) + "\n"


def _summary(kind: type[Any]) -> str:
    text = " ".join((kind.__doc__ or "").split())
    return text.split(". ")[0].split("; ``")[0].rstrip(".").replace("``", "`")


def _fields(kind: type[Any]) -> str:
    hints = get_type_hints(kind)
    return ", ".join(f"`{name}`: {_name(hints[name])}" for name in kind.__struct_fields__)


def _name(hint: Any) -> str:
    """A type as JSON has it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return " or ".join(map(_name, arguments))
    if origin is dict:
        return f"{{{_name(arguments[0])}: {_name(arguments[1])}}}"
    if origin is tuple:
        return f"[{_name(arguments[0])}, ...]" if arguments[-1] is Ellipsis else f"[{', '.join(map(_name, arguments))}]"
    if hint is type(None):
        return "null"
    if hasattr(hint, "__struct_fields__"):
        return f"{{{', '.join(hint.__struct_fields__)}}}"
    return {int: "int", float: "number", str: "text", bool: "bool", Any: "any"}[hint]


if __name__ == "__main__":
    PAGE.write_text(page())
