"""Start a job of ``plink submit``: the launch, with environment variables from a private file.

``python -m plink.cli.submitted FILE launch ...``: FILE, which only its owner can read, holds as JSON the environment of
``--env``.
"""

import json
import sys
from pathlib import Path

from plink.cli.entry import run
from plink.cli.streams import run_guarded


def launch_arguments(arguments: list[str]) -> list[str]:
    """Return the launch as it would be typed; options stand before the first ``--``, which a submitted launch has."""
    file, *typed = arguments
    env = json.loads(Path(file).read_text(encoding="utf-8"))
    end = typed.index("--")
    return [*typed[:end], *(f"--env={name}={value}" for name, value in env.items()), *typed[end:]]


if __name__ == "__main__":
    sys.exit(run_guarded(lambda: run(launch_arguments(sys.argv[1:]))))
