"""Schema of what launching agents send (:mod:`runners.job.rank_agent`, :mod:`runners.job.torchrun_agent`)."""

from plink.remote.message_schema import (
    MessageSchema,
    integer,
    list_of,
    non_empty_list_of,
    number,
    one_of,
    optional,
    record,
    text,
)

_IDENTITY = {"hostname": text, "boot_id": text, "cores": integer, "addresses": list_of(text)}

AGENT_MESSAGES = MessageSchema(
    {
        "ready": {"address": text, **_IDENTITY},
        "digest": {"path": optional(text)},
        "part_stored": {"bytes": integer},
        "extracted": {"path": optional(text), "error": optional(text)},
        "set_up": {
            "argv": non_empty_list_of(text),
            "workdir": text,
            "interface": text,
            "address": text,
            "port": integer,
            "versions": optional(record(python=optional(text), torch=optional(text), plink=optional(text))),
            "problems": list_of(text),
        },
        "listener_opened": {"error": optional(text)},
        "connected": {"error": optional(text)},
        "flow_port": {"port": optional(integer)},
        "flow_rate": {"gbps": optional(number), "error": optional(text)},
        "rank_report": {"rank": integer, "pid": integer, "hostname": text, "addresses": list_of(text)},
        "output": {"rank": optional(integer), "stream": one_of("out", "err"), "text": text},
        "line": {"text": text},
        "exited": {"rank": integer, "code": integer},
        "failed": {"error": text},
    }
)
