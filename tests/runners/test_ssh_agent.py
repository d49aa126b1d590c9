"""Which key a file is about, without its passphrase."""

import base64
import subprocess
from pathlib import Path

import pytest

from runners.ssh.connector import ChosenKeys, public_part


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key with a passphrase, and its public half beside it."""
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(path)], check=True)
    return path


def test_a_key_is_known_by_either_file(key: Path) -> None:
    public = Path(f"{key}.pub")
    blob = base64.b64decode(public.read_text().split()[1])
    assert public_part(key) == blob
    assert public_part(public) == blob  # an IdentityFile may be the public half alone
    public.write_text("what is this")
    assert public_part(key) == blob
    public.unlink()
    assert public_part(key) == blob
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n")
    assert public_part(key) is None
    key.unlink()
    assert public_part(key) is None


def test_nobody_is_asked_where_no_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "nobody"))
    chosen = ChosenKeys([])
    assert chosen.get_keys() == ()
    chosen.close()
