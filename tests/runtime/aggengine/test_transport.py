"""What a process needs for its connections."""

import json
import subprocess
import sys

import pytest

from tests.runtime.torchruns import ROOT

ALLOW = """
import json, os, resource, sys
from plink.runtime.aggengine.transport import allow
soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow(1000)
print(json.dumps([*resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd"))]))
"""


@pytest.mark.parametrize(("soft", "hard"), [(100, 4000), (100, 1100), (3000, 4000)])
def test_files_are_allowed_for_connections(soft: int, hard: int) -> None:
    """As many as are needed, as long as the hard limit lets them; a limit that is high enough stays."""
    end = subprocess.run(
        [sys.executable, "-c", ALLOW, str(soft), str(hard)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    now, still, opened = json.loads(end.stdout)
    assert still == hard
    assert now == (soft if soft == 3000 else min(hard, 1000 + 256 + opened))
