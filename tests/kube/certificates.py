"""Certificates for tests: an authority, a server on 127.0.0.1, clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_HOST = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("kubernetes")])


@dataclass(frozen=True, slots=True)
class Certified:
    certificate: bytes
    key: bytes


class Authority:
    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = _sign(self._name, self._name, self._key.public_key(), self._key, authority=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, common_name_only: bool = False) -> Certified:
        key = ec.generate_private_key(ec.SECP256R1())
        host = None if common_name_only else _HOST
        certificate = _sign(_name(name), self._name, key.public_key(), self._key, host=host)
        return Certified(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def server_context(self, folder: Path) -> ssl.SSLContext:
        """For a server that takes, and does not demand, client certificates of this authority."""
        issued = self.issue("server")
        path = folder / "server.pem"
        path.write_bytes(issued.certificate + issued.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(path)
        return context


@cache
def authority() -> Authority:
    return Authority()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    host: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if host is not None:
        builder = builder.add_extension(host, critical=False)
    return builder.sign(signing_key, hashes.SHA256())
