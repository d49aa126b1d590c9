"""Keys of one run: only a process that has them can read and write its parameters.

A run has a certificate of its own, which vouches for itself, and its private key; every host of the run gets both, and
no file on disk outlives a run that does not write one. Two hosts meet by mutual TLS 1.3 with it: a stranger has no
certificate or the wrong one and is refused before a byte of a message is read. Inside TLS each end gives 32 random
bytes, and from these come the keys of the records that follow (:mod:`.records`), so that they are as
secret as TLS and forgotten with the connection.
"""

import datetime
import os
import socket
import ssl
from dataclasses import dataclass, field
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plink.errors import InputError, PlinkError
from plink.runtime.elastic.transport.records import ConnectionLost, SealedChannel

_RANDOM_BYTES = 32
_VALID_DAYS = 365
_CLOCK_SKEW = datetime.timedelta(days=1)  # hosts' clocks need not agree


class Unauthenticated(PlinkError):
    """The other end has no key of this run, or does not speak its protocol."""


@dataclass(frozen=True)
class RunKeys:
    """Certificate and private key of one run (``pem``). Send it to the hosts of the run over what is private already
    (ssh); it is never printed."""

    pem: bytes = field(repr=False)

    @classmethod
    def make(cls) -> "RunKeys":
        """Make new keys, P-256, valid for a year."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"plink run {os.urandom(8).hex()}")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate stands for the run, whatever a host is called
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            certificate = x509.load_pem_x509_certificate(self.pem).public_bytes(serialization.Encoding.PEM)
            context.load_verify_locations(cadata=certificate.decode())
            # OpenSSL takes keys from files only: this one is in memory, and ends with the process at the latest.
            with open(os.memfd_create("plink"), "wb") as file:
                file.write(self.pem)
                file.flush()
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        except (ValueError, ssl.SSLError) as error:
            raise InputError("keys of the run", str(error)) from error
        return context

    @cached_property
    def _accepting(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # nothing may follow the handshake but what is read here
        return context

    @cached_property
    def _connecting(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def accept(self, sock: socket.socket) -> SealedChannel:
        """Authenticate a client. The socket's time-out holds, and is still set after.

        :raises Unauthenticated: it has no key of the run. :raises ConnectionLost: it went away.
        """
        return self._handshake(sock, accepted=True)

    def connect(self, sock: socket.socket) -> SealedChannel:
        """Authenticate a server. :raises Unauthenticated, ConnectionLost: as for :meth:`accept`."""
        return self._handshake(sock, accepted=False)

    def _handshake(self, sock: socket.socket, *, accepted: bool) -> SealedChannel:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = os.urandom(_RANDOM_BYTES)
        try:
            context = self._accepting if accepted else self._connecting
            met = context.wrap_socket(sock, server_side=accepted)
        except (OSError, ValueError) as error:
            sock.close()
            raise _handshake_error(error) from error
        try:
            # The one who connected gives first and is answered when its certificate has been found good.
            if accepted:
                peer = _exactly(met)
                met.sendall(own)
            else:
                met.sendall(own)
                peer = _exactly(met)
        except OSError as error:
            met.close()
            raise _handshake_error(error) from error
        timeout = met.gettimeout()
        # OpenSSL reads record by record, and both have read the last one there is: the stream goes on without TLS.
        plain = socket.socket(fileno=met.detach())
        plain.settimeout(timeout)
        return SealedChannel(plain, peer + own if accepted else own + peer, accepted=accepted)


def _exactly(met: ssl.SSLSocket) -> bytes:
    result = b""
    while len(result) < _RANDOM_BYTES:
        more = met.recv(_RANDOM_BYTES - len(result))
        if not more:
            raise ConnectionResetError("closed in the handshake")
        result += more
    return result


def _handshake_error(error: Exception) -> PlinkError:
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):  # that is one who died
        return Unauthenticated(f"the other end is not of this run: {error.reason or error}")
    return ConnectionLost(f"connection lost in the handshake: {error}")
