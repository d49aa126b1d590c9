"""Host certificates as OpenSSH writes them: one counts as it is, and changed in no place."""

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.ssh.host_keys import InvalidCertificate, authority_of, verify
from runners.ssh.settings import CA_SIGNATURES


def blob(path: Path) -> bytes:
    """What a public file has."""
    return base64.b64decode(path.read_text().split()[1])


@pytest.fixture(scope="module", params=["ed25519", "ecdsa", "rsa"])
def certificate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A certificate for node-1 and all of rack-2, and the public key of its authority."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "host"):
        bits = ["-b", "2048"] if request.param == "rsa" else []
        words = ["ssh-keygen", "-q", "-t", request.param, *bits, "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    names = ["-n", "node-1,*.rack-2", "-V", "-1h:+1h"]
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(folder / "ca"), "-I", "it", "-h", *names, str(folder / "host.pub")], check=True
    )
    return blob(folder / "host-cert.pub"), blob(folder / "ca.pub")


def test_a_certificate_counts_unchanged_and_for_its_names_only(certificate: tuple[bytes, bytes]) -> None:
    data, authority = certificate
    assert authority_of(data) == authority
    for host in ("node-1", "a.rack-2"):
        verify(data, [authority], host, CA_SIGNATURES)
    for host in ("node-2", "rack-2", "node-1.rack-3", "*.rack-2x"):
        with pytest.raises(InvalidCertificate):
            verify(data, [authority], host, CA_SIGNATURES)
    for place in (*range(data.rindex(authority) + len(authority) + 4), len(data) - 1):
        with pytest.raises(InvalidCertificate):
            verify(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], [authority], "node-1", CA_SIGNATURES)
    for changed in (data + b"\0", data[:-1], b""):
        with pytest.raises(InvalidCertificate):
            verify(changed, [authority], "node-1", CA_SIGNATURES)
    for authorities, algorithms in (([], CA_SIGNATURES), ([authority], ("ssh-dss",))):
        with pytest.raises(InvalidCertificate):
            verify(data, authorities, "node-1", algorithms)


@given(st.binary(max_size=400))
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        verify(data, [authority_of(data)], "a", CA_SIGNATURES)
