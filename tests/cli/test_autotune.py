"""`plink launch --autotune`: what it refuses."""

from pathlib import Path

import pytest

from tests.conftest import typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runner", "local", "--slots", "2", "--autotune"], "--autotune goes with --backend"),
        (["--runner", "torchrun", "--backend", "flat", "--autotune"], "with --runner ssh or local"),
        (["--runner", "local", "--slots", "4", "--backend", "ring", "--autotune"],
         "--autotune moves masters between ranks: it needs --backend 2lha or flat"),
        (["--runner", "local", "--slots", "4", "--backend", "flat", "--autotune", "--set", "autotune-every=soon"],
         "soon"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned(words: list[str], message: str, tmp_path: Path) -> None:
    done = typed("launch", *words, "true", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
