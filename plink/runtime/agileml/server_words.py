"""What a controller says of partitions: words on a node's line, each done by the server of its host."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from plink.errors import PlinkError
from plink.model.checkpoint_names import partition_file
from plink.runtime.agileml.control_line import Message
from plink.runtime.agileml.server import Server

Does = Callable[[Server, Message], Message | None]


def _open(server: Server, message: Message) -> None:
    """Serve a partition that nobody has."""
    server.open(message["partition"], {}, era=message["era"], epoch=message["epoch"], history=True)


def _restore(server: Server, message: Message) -> None:
    """Serve a partition as of a clock of a checkpoint."""
    server.restore(
        message["partition"], Path(message["path"]), {}, era=message["era"], epoch=message["epoch"],
        clock=message["clock"],
    )  # fmt: skip


def _prepare(server: Server, message: Message) -> None:
    """Send a partition on its way."""
    server.prepare(message["partition"], message["address"], message["epoch"], backup=message["backup"])


def _commit(server: Server, message: Message) -> None:
    """Let the new owner begin."""
    server.commit(message["partition"], message["epoch"])


def _cancel(server: Server, message: Message) -> Message:
    """A move is off."""
    return {"off": server.cancel(message["partition"], message["epoch"])}


def _back_up(server: Server, message: Message) -> None:
    """Another backup beside the one that is there."""
    server.back_up(message["partition"], message["address"])


def _push_to(server: Server, message: Message) -> None:
    """This backup alone."""
    server.push_to(message["partition"], message["address"])


def _stop_pushing(server: Server, message: Message) -> None:
    """Not that backup any more."""
    server.stop_pushing(message["partition"], message["address"])


def _restore_to(server: Server, message: Message) -> None:
    """A backup sends its state to who is to serve it."""
    server.restore_to(message["partition"], message["address"], message["epoch"], {}, message["first"])


def _drop(server: Server, message: Message) -> None:
    """What is here of a partition is of no use."""
    server.drop(message["partition"], message["epoch"])


def _take_over(server: Server, message: Message) -> None:
    """A backup serves."""
    server.take_over(message["partition"], {}, message["first"], message["epoch"])


def _forget(server: Server, message: Message) -> None:
    """Moves of before an epoch are off."""
    for status in server.status():
        server.cancel(status.partition, message["epoch"])


def _release(server: Server, message: Message) -> None:
    """All backups have that clock."""
    server.release(message["clock"])


def _push_up_to(server: Server, message: Message) -> None:
    """The next round of pushes."""
    server.push_up_to(message["clock"])


def _take_part(server: Server, message: Message) -> Message:
    """From a clock on these workers take part in partitions; those that are not served here are told."""
    elsewhere = []
    for partition in message["partitions"]:
        try:
            server.workers_from(partition, message["workers"], message["first"])
        except PlinkError as error:
            elsewhere.append([partition, str(error)])
    return {"elsewhere": elsewhere}


def _checkpoint(server: Server, message: Message) -> Message:
    """Partitions into files of a folder."""
    folder, begun, size = Path(message["folder"]), time.monotonic(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for partition in message["partitions"]:
        path = folder / partition_file(partition)
        server.checkpoint(partition, path)
        size += path.stat().st_size
    return {"seconds": time.monotonic() - begun, "bytes": size}


AT_ONCE: Mapping[str, Does] = {
    "open": _open, "cancel": _cancel, "push_to": _push_to, "stop_pushing": _stop_pushing, "drop": _drop,
    "take_over": _take_over, "forget": _forget, "release": _release, "push_up_to": _push_up_to,
    "take_part": _take_part,
}  # fmt: skip
MOVING: Mapping[str, Does] = {"prepare": _prepare, "back_up": _back_up, "restore_to": _restore_to}
LONG: Mapping[str, Does] = {**MOVING, "commit": _commit, "restore": _restore, "checkpoint": _checkpoint}
