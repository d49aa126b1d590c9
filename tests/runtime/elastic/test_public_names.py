"""What programs import: ``plink.elastic``."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from plink import elastic

ROOT = Path(__file__).parents[3]


def test_every_public_name_is_in_the_stub() -> None:
    stub = ast.parse((ROOT / "plink" / "elastic" / "__init__.pyi").read_text())
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(elastic.__all__) == set(dir(elastic))
    for name in elastic.__all__:
        assert getattr(elastic, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        elastic.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "heavy"), [("import plink.elastic", "numpy"), ("from plink.elastic import App, Sgd, train", "torch")]
)
def test_names_are_imported_when_used(statement: str, heavy: str) -> None:
    code = f"import sys; {statement}; print({heavy!r} in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
