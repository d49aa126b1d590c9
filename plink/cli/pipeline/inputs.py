"""Files that several commands of ``plink pipeline`` read."""

from pathlib import Path

from plink.errors import UsageError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.plan_file import read_pipeline
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.profile_file import read_profile
from plink.records import workspace
from plink.terminal.screen import say_read


def profile_from(path: Path | None) -> ModelProfile:
    """Return the named profile, or the workspace's.

    :raises UsageError: when there is none.
    """
    if path is not None:
        return read_profile(path)
    workspace.check_trusted()
    if not workspace.PROFILE.is_file():
        raise UsageError(f"no {workspace.PROFILE} here yet: run `plink pipeline profile PROGRAM` first, or name a file")
    say_read(workspace.PROFILE)
    return read_profile(workspace.PROFILE)


def plan_from(path: Path | None) -> tuple[PipelinePlan, Path]:
    """Return the named plan, or the workspace's, and where it stands.

    :raises UsageError: when there is none.
    """
    if path is not None:
        return read_pipeline(path), path
    workspace.check_trusted()
    if not workspace.PIPELINE.is_file():
        raise UsageError(f"no {workspace.PIPELINE} here yet: run `plink pipeline plan` first, or name a file")
    say_read(workspace.PIPELINE)
    return read_pipeline(workspace.PIPELINE), workspace.PIPELINE
