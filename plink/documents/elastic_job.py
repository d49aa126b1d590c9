"""``plink.elastic-job/1``: where an elastic run is asked."""

from typing import Literal, TypedDict

from plink.documents.types import LabName, Name, PositiveInt


class ElasticJobDocument(TypedDict):
    """Where an elastic run is asked.

    Left in .plink/runs/ID/elastic.json by `plink elastic run`, for `plink elastic add`, `evict`, `checkpoint` and
    `status`; it stays when the run has ended, the socket does not.
    """

    schema: Literal["plink.elastic-job/1"]
    """Kind and version of this file."""
    socket: Name
    """Path of the local socket at which the run takes wishes, of its own user and root."""
    pid: PositiveInt
    """The process of `plink launch`."""
    lab: LabName | None
    """The lab that its hosts belong to; null: none."""
    runner: str
    """What started the hosts' parts: ssh, local, slurm, kubernetes."""
