"""Documents as files, whatever the texts in them."""

from pathlib import Path

from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.storage import read_document


def test_texts_that_are_no_utf_8(tmp_path: Path) -> None:
    """As Python reads the names of files that are of other bytes."""
    preview = DryRun("local", (LaunchCommand(("cat", "o\udcff")),))
    (command,) = preview.to_json()["commands"]
    assert command["argv"] == ["cat", "o\udcff"]
    preview.write(tmp_path / "preview.json")
    assert "\\udcff" in (tmp_path / "preview.json").read_text()


def test_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    preview = DryRun("local", (LaunchCommand(("cat", "x"), host="a", ranks=(0, 1)),), {"hosts": "a"})
    preview.write(tmp_path / "preview.json")
    assert read_document(tmp_path / "preview.json") == preview.to_json()
