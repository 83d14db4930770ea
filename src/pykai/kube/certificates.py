"""Certificate authorities and server certificates, made in memory.

Keys are P-256: fast to create and to use.  An authority signs for as long as its key is kept; where one
certificate is needed, the key is dropped with the authority.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS: Final = timedelta(days=3650)
#: clocks of machines differ
_SKEW: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate, with those that follow it in its chain, and its key; both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def create(cls, name: str, lifetime: timedelta = YEARS, now: datetime | None = None) -> CertificateAuthority:
        """A new authority, valid from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(name, _name(name), key, lifetime, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        """The certificate, as clients trust it."""
        return pem_of(self.certificate)

    def issue(
        self,
        hosts: Iterable[str],
        *,
        common_name: str = "pykai",
        lifetime: timedelta = YEARS,
        now: datetime | None = None,
    ) -> CertificatePair:
        """A server certificate for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(common_name, self.certificate.subject, key, lifetime, now)
            .add_extension(x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return CertificatePair(pem_of(builder.sign(self.key, hashes.SHA256())), key_pem(key))


def load_pair(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """Have a TLS server use the pair for new connections; raises `ssl.SSLError` if the two do not match."""
    # The ssl module reads certificates from files only; the folder is private and removed at once.
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "server.pem"
        with os.fdopen(os.open(chain, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pair.certificate + b"\n" + pair.key)
        context.load_cert_chain(chain)


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    common_name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta, now: datetime | None
) -> x509.CertificateBuilder:
    now = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
