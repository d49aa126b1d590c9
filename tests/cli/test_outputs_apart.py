"""No command writes a result over what it was made from, or over its other result."""

from pathlib import Path

import pytest

from tests.cli.files import listing, network, refusal, write
from tests.conftest import typed

READ, BOTH = "that is what is read; name another file", "two results cannot go to one file; name another file"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Networks, runs, an order, groups, a topology; and the network that commands take where none is named."""
    (tmp_path / ".plink").mkdir()
    for name in ("net.json", "new.json", ".plink/network.json"):
        write(tmp_path / name, network())
    run = {"order": "a", "predicted_us": 1, "achieved_s": [1.0]}
    write(tmp_path / "runs.json", {"schema": "plink.check/1", "runs": [run, run | {"predicted_us": 2}]})
    (tmp_path / "order").write_text("a\nb\nc\nd\n")
    (tmp_path / "groups").write_text("a c\nb d\n")
    (tmp_path / "hosts.txt").write_text("a\nb\n")
    (tmp_path / "topology").write_text("SwitchName=s Nodes=a,b,c,d\n")
    return tmp_path


@pytest.mark.parametrize(("line", "why"), [
    ("diff net.json new.json --junit net.json", READ),
    ("diff net.json new.json --junit ./new.json", READ),
    ("check --results runs.json --junit runs.json", READ),
    ("check net.json --truth groups --junit groups", READ),
    ("check --truth groups --junit .plink/network.json", READ),
    ("check --results runs.json --max-regression order --junit order", READ),
    ("check net.json --measure -o net.json", READ),
    ("check --measure -o .plink/network.json", READ),
    ("check net.json --measure --truth groups -o groups", READ),
    ("check net.json --measure -o x --junit x", BOTH),
    ("check net.json --measure --junit .plink/check.json", BOTH),
    ("embed net.json -o net.json", READ),
    ("embed -o .plink/network.json", READ),
    ("cluster net.json -o net.json", READ),
    ("plan net.json -o net.json", READ),
    ("plan net.json --order order -o order", READ),
    ("plan net.json --groups groups -o groups", READ),
    ("report net.json -o net.json", READ),
    ("report net.json --order order -o order", READ),
    ("report net.json --groups groups -o groups", READ),
    ("report net.json --results runs.json -o runs.json", READ),
    ("reorder net.json -o net.json", READ),
    ("reorder net.json --prior topology -o topology", READ),
    ("reorder --topology topology -o topology", READ),
    ("reorder --topology topology --hosts hosts.txt -o hosts.txt", READ),
    ("reorder net.json --algo 2lha --groups groups -o groups", READ),
    ("reorder --algo ring --format openmpi -o .plink/order.json", BOTH),
    ("launch --runner kubernetes --image x/y:1 --hosts hosts.txt -o hosts.txt python3 t.py", READ),
    ("launch --runner kubernetes --image x/y:1 --order order -o order t.py", READ),
    ("launch --runner kubernetes --image x/y:1 --plan order -o order t.py", READ),
    ("launch --runner kubernetes --image x/y:1 -o .plink/network.json t.py", READ),
    ("probe hosts.txt -o hosts.txt --dry-run", READ),
])  # fmt: skip
def test_what_was_read_is_still_there(line: str, why: str, here: Path) -> None:
    before = listing(here)
    assert why in refusal(typed(*line.split(), cwd=here))
    assert listing(here) == before
