"""Checkpoints of one job, as a host of it sees them."""

from dataclasses import dataclass
from pathlib import Path

from plink.model.elastic.fields import SavedCheckpoint
from plink.runtime.elastic.host import checkpoint_folder


@dataclass(frozen=True)
class JobCheckpoints:
    """Checkpoints of one job; for any thread.

    :param folder: that the job writes to, "": none. :param restore: that it began from, "": none. :param job: its name.
    """

    folder: str = ""
    restore: str = ""
    job: str = ""

    def on_disk(self) -> tuple[SavedCheckpoint | None, SavedCheckpoint | None]:
        """Return checkpoints that can be read here: the one that the job restores, and its own latest."""
        result = (
            checkpoint_folder.latest(Path(self.restore)) if self.restore else None,
            checkpoint_folder.latest(Path(self.folder), self.job) if self.folder else None,
        )
        saved, own = (None if item is None else SavedCheckpoint(**item) for item in result)
        return saved, own

    def unwritable(self) -> str | None:
        """Return why this host cannot write any; None: it can, or there are to be none."""
        return checkpoint_folder.unwritable(Path(self.folder)) if self.folder else None

    def mark(self) -> None:
        """Show other hosts that the folder is the one that this host sees. :raises OSError: it cannot be written."""
        checkpoint_folder.mark(Path(self.folder), self.job)

    def check_mark(self) -> None:
        """Check that another host's mark is seen here. :raises InputError: it is not."""
        checkpoint_folder.check_mark(Path(self.folder), self.job)

    def unmark(self) -> None:
        """Remove the mark, if there is any."""
        if self.folder:
            checkpoint_folder.unmark(Path(self.folder), self.job)
