"""``plink.info/1``: what a bug report needs."""

from typing import Any, Literal, NotRequired, TypedDict


class PlinkEntry(TypedDict):
    """plink itself."""

    version: str
    source: Literal["checkout", "installed"]
    commit: NotRequired[str | None]
    """Beginning of the Git commit; null when not known."""
    changed: NotRequired[bool | None]
    """Whether tracked files differ from the commit."""


Python = TypedDict(
    "Python",
    {
        "version": str,
        "implementation": NotRequired[str],
        "virtual environment": NotRequired[bool],
    },
)


class HardwareEntry(TypedDict):
    """What there is to compute with."""

    cpus: int | None
    """Logical CPUs."""
    usable_cpus: NotRequired[int | None]
    """Those that this process may run on."""
    memory_bytes: int
    gpus: list[str]
    """Names of GPUs, as NVIDIA's driver tells them."""


class LabEntry(TypedDict):
    """Whether `plink lab` can work here."""

    possible: bool
    missing: list[str]


class InfoDocument(TypedDict):
    """What a bug report needs.

    Printed by `plink info --json`. Any part may be an object with the key `error`
    instead: why it could not be had.
    """

    schema: Literal["plink.info/1"]
    """Kind and version of this document."""
    full: bool
    """Whether --full was given: then `names` and `pytorch` are there too."""
    plink: PlinkEntry
    """plink itself."""
    python: Python
    """The interpreter."""
    system: dict[str, str | None]
    """Kernel, machine, distribution, C library."""
    hardware: HardwareEntry
    """What there is to compute with."""
    packages: dict[str, str | None]
    """Versions of Python packages by name, null where there is none."""
    programs: dict[str, str | None]
    """What programs say of their version; `found` where they are not asked, null where they are not there."""
    lab: LabEntry
    """Whether `plink lab` can work here."""
    entry_points: dict[str, str | None]
    """What PyTorch and torchrun find of plink, by group."""
    environment: dict[str, str]
    """Variables of NCCL, Gloo and plink: values of harmless ones, (set) or (empty) of others."""
    workspace: dict[str, dict[str, int]]
    """Results in ./.plink by file: age in seconds and bytes; of runs their number and the age of the latest."""
    names: NotRequired[dict[str, str]]
    """With --full: host name and paths."""
    pytorch: NotRequired[dict[str, Any]]
    """With --full: what PyTorch says of itself."""
