"""What `plink launch` refuses before it connects to any host, for what comes then takes long."""

from pathlib import Path

import pytest

from tests.cli.files import refusal
from tests.conftest import typed


@pytest.mark.parametrize(("words", "named"), [
    (("--backend", "nosuch"), "--backend nosuch"),
    (("--backend", "nosuch.json"), "nosuch.json"),
    (("--backend", "ring", "--autotune"), "--autotune"),
    (("--timeout", "soon"), "soon"),
    (("--runner", "mpirun", "--launcher-args", "'"), "--launcher-args"),
])  # fmt: skip
def test_bad_options_are_refused_before_probing(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    """No host of the file can be reached: nobody tried."""
    (tmp_path / "hosts.txt").write_text("".join(f"h{k} address=127.0.0.1 port=1\n" for k in range(4)))
    message = refusal(typed("launch", "--hosts", "hosts.txt", *words, "true", cwd=tmp_path))
    assert named in message
