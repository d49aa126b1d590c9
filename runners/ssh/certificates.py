"""Host certificates of OpenSSH (PROTOCOL.certkeys), verified as ``ssh`` does: Paramiko only takes the key out.

As in OpenSSH from 10.3 on principals are patterns, and a certificate without any counts for no host.
"""

import time
from collections.abc import Iterable, Sequence

import paramiko

from runners.ssh.known_hosts import matches_any

_HOST = 2
# Fields of the public key itself.
_KEY_FIELDS = {"ssh-rsa": 2, "ssh-ed25519": 1}
_ECDSA_FIELDS = 2
_SUFFIX = "-cert-v01@openssh.com"


class InvalidCertificate(Exception):
    """A host certificate does not vouch for the host; one line that follows "its host certificate"."""


def authority_of(certificate: bytes) -> bytes:
    """Return the public key (RFC 4253, 6.6) that signed a certificate, as that says itself; empty if unreadable."""
    return _Fields(certificate).authority


def verify(certificate: bytes, authorities: Iterable[bytes], host: str, algorithms: Sequence[str]) -> None:
    """Verify that an authority vouches for a host, now.

    :param authorities: public keys. :param host: its name, in small letters.
    :param algorithms: of signatures that count (ssh_config(5), CASignatureAlgorithms).
    :raises InvalidCertificate: when none does; says why.
    """
    fields = _Fields(certificate)
    if fields.authority not in authorities:
        raise InvalidCertificate("is signed by an authority that no @cert-authority line has for it")
    if not fields.is_signed(algorithms):
        raise InvalidCertificate("has an invalid signature")
    if fields.kind != _HOST:
        raise InvalidCertificate("is one for users")
    if time.time() < fields.valid_after:
        raise InvalidCertificate(f"is valid only from {_moment(fields.valid_after)} on")
    if time.time() >= fields.valid_before:
        raise InvalidCertificate(f"expired at {_moment(fields.valid_before)}")
    principals = list(_strings(fields.principals))
    if not matches_any(principals, host):
        raise InvalidCertificate(f"is for {', '.join(principals) or 'no host by name'}, not for {host}")
    if fields.critical_options:
        raise InvalidCertificate("has critical options, and none is known")


class _Fields:
    """The fields of a certificate; whatever is missing is empty or 0, as Paramiko reads it: it is not signed then."""

    def __init__(self, certificate: bytes) -> None:
        message = paramiko.Message(certificate)
        plain = message.get_binary().decode(errors="replace").removesuffix(_SUFFIX)
        for _ in range(1 + _KEY_FIELDS.get(plain, _ECDSA_FIELDS)):  # a nonce before them
            message.get_binary()
        message.get_int64()  # serial number
        self.kind = message.get_int()
        message.get_binary()  # its name
        self.principals = message.get_binary()
        self.valid_after, self.valid_before = message.get_int64(), message.get_int64()
        self.critical_options = message.get_binary()
        message.get_binary()  # extensions: none is for hosts
        message.get_binary()  # reserved
        self.authority = message.get_binary()
        self._signed, self._signature = message.get_so_far(), message.get_binary()
        self._is_whole = self._signed + len(self._signature).to_bytes(4, "big") + self._signature == certificate

    def is_signed(self, algorithms: Sequence[str]) -> bool:
        """Whether the signature is the authority's, by one of these algorithms."""
        try:
            algorithm = paramiko.Message(self._signature).get_text()
            key = paramiko.PKey.from_type_string(paramiko.Message(self.authority).get_text(), self.authority)
            return (
                self._is_whole
                and algorithm in algorithms
                and key.verify_ssh_sig(self._signed, paramiko.Message(self._signature))
            )
        except Exception:  # Paramiko and its library have many words for keys and signatures that are none
            return False


def _strings(data: bytes) -> Iterable[str]:
    message = paramiko.Message(data)
    while message.get_remainder():
        yield message.get_binary().decode(errors="replace")


def _moment(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "a time beyond all calendars"
