"""What launching agents say (:mod:`runners.job.rank_agent`, :mod:`runners.job.torchrun_agent`)."""

from plink.remote.message_schema import MessageSchema, many, maybe, one_of, record, some, text, whole

_MACHINE = {"hostname": text, "boot_id": text, "cores": whole, "addresses": many(text)}

AGENT_MESSAGES = MessageSchema(
    {
        "ready": {"address": text, **_MACHINE},
        "has": {"path": maybe(text)},
        "took": {"bytes": whole},
        "unpacked": {"path": maybe(text), "why": maybe(text)},
        "prepared": {
            "argv": some(text),
            "workdir": text,
            "interface": text,
            "address": text,
            "port": whole,
            "versions": maybe(record(python=maybe(text), torch=maybe(text), plink=maybe(text))),
            "problems": many(text),
        },
        "listening": {"why": maybe(text)},
        "reached": {"why": maybe(text)},
        "reported": {"rank": whole, "pid": whole, "hostname": text, "addresses": many(text)},
        "output": {"rank": maybe(whole), "stream": one_of("out", "err"), "text": text},
        "line": {"text": text},
        "exited": {"rank": whole, "code": whole},
        "failed": {"why": text},
    }
)
