"""Which keys known_hosts files have for a host, read as sshd(8) describes them."""

import threading
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from runners.ssh.host_keys import HostKeyCheck, keys_of
from runners.ssh.settings import SshSettings

KEYS = [
    Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))
    .public_key()
    .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    .decode()
    for number in range(3)
]
HASHED = paramiko.HostKeys.hash_host("node1", "|1|Dy167uSAMg+TfT4+61xbaVQ5P8k=")


def noted(name: str, text: str, folder: Path) -> list[str]:
    """The keys of a host."""
    (folder / "known").write_text(text)
    return [f"{key.get_name()} {key.get_base64()}" for key in keys_of(name, [folder / "none", folder / "known"])]


PATTERNS = [
    ("Node1", "node1", True),
    ("node1", "node10", False),
    ("gate,node1", "node1", True),
    ("10.0.0.*", "10.0.0.7", True),
    ("10.0.0.*", "10.0.1.7", False),
    ("*.cluster", "a.cluster", True),
    ("*.cluster,!b.cluster", "b.cluster", False),
    ("!b.cluster,*.cluster", "a.cluster", True),
    ("!b.cluster", "a.cluster", False),
    ("[10.0.0.*]:2222", "[10.0.0.7]:2222", True),
    ("[10.0.0.*]:2222", "10.0.0.7", False),
    ("[ab]", "a", False),
    (HASHED, "node1", True),
    (HASHED, "node2", False),
    ("|1|AAAA|AAAA", "node1", False),
    ("#node1", "#node1", False),
]


def test_names_are_patterns(tmp_path: Path) -> None:
    result = [(names, host, noted(host, f"{names} {KEYS[0]} a comment\n", tmp_path) == KEYS[:1])
             for names, host, _ in PATTERNS]  # fmt: skip
    assert result == PATTERNS


def test_all_keys_of_a_host_count(tmp_path: Path) -> None:
    text = f"node1 {KEYS[0]}\n@revoked node1 {KEYS[2]}\nnode2 {KEYS[2]}\nnode1 ssh-ed25519 A\n*1 {KEYS[1]}\n"
    assert noted("node1", text, tmp_path) == KEYS[:2]


def test_concurrently_added_host_key_is_not_added_twice(tmp_path: Path) -> None:
    """Two hosts under one name (HostKeyAlias), connected to side by side: the second must show the first one's key."""
    settings = SshSettings("10.0.0.7", 22, "ann", known_hosts=(tmp_path / "known",), host_key_alias="Gate")
    checks = [HostKeyCheck(settings, True, threading.Lock()) for _ in range(3)]
    ours, other = keys_of_texts(tmp_path)
    client = paramiko.SSHClient()
    checks[0].missing_host_key(client, "", ours)
    checks[1].missing_host_key(client, "", ours)
    with pytest.raises(paramiko.BadHostKeyException):
        checks[2].missing_host_key(client, "", other)
    assert (tmp_path / "known").read_text() == f"gate {KEYS[0]}\n"


def keys_of_texts(folder: Path) -> list[paramiko.PKey]:
    """The first two keys."""
    (folder / "texts").write_text(f"x {KEYS[0]}\nx {KEYS[1]}\n")
    return keys_of("x", [folder / "texts"])
