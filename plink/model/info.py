"""What a bug report needs to know of a machine (``plink.info/1``)."""

from plink.model.document import Document, Part


class ResultFile(Part, frozen=True, kw_only=True):
    """A result in ./.plink."""

    age_s: int
    """Seconds since it was written."""
    bytes: int
    """Its size."""


class Info(Document, frozen=True, kw_only=True, tag="plink.info/1"):
    """What a bug report needs; it names no host, address, user or folder.

    Printed by `plink info --json`.
    """

    plink: str
    """Version of plink, and the commit where it is a checkout."""
    python: str
    """Version of Python, and whether it is in a virtual environment."""
    system: str
    """Kernel, machine, distribution and C library."""
    cpus: int
    """CPUs that this process may run on."""
    memory_bytes: int
    """Memory of this machine."""
    gpus: tuple[str, ...]
    """Names of GPUs, as NVIDIA's driver tells them."""
    packages: dict[str, str | None]
    """Versions of Python packages by name, null where there is none."""
    programs: dict[str, str | None]
    """Versions of programs; `found` where they are not asked or tell none, null where they are not there."""
    lab_needs: tuple[str, ...]
    """What `plink lab` misses here; empty where it can work."""
    entry_points: dict[str, str | None]
    """What PyTorch and torchrun find of plink, by group."""
    environment: dict[str, str]
    """Variables of NCCL, Gloo and plink: values of harmless ones, (set) or (empty) of others."""
    results: dict[str, ResultFile]
    """Results in ./.plink by file."""
    runs: int
    """Jobs that ./.plink has a record of."""
