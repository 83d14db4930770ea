"""The server's own certificate authority, created at first start.

kubectl sends a bearer token only over HTTPS and trusts the CA in its kubeconfig, so the server creates a CA, puts it
into the kubeconfig and signs a certificate for its host names. Keys are P-256: fast to create and to use. The CA stays
in the data folder; each start issues a new server certificate.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pykai.lab.apiserver.users import write_private

_YEARS: Final = timedelta(days=3650)
_SKEW: Final = timedelta(minutes=5)
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate, as clients trust it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def load(cls, folder: Path | None) -> Authority:
        """The authority of the folder, created at first use; without a folder it lives as long as the server."""
        if folder is None:
            return _new_authority()
        certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
        if certificate_path.exists() and key_path.exists():
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{key_path} is not a key that this server made; move it and {certificate_path} away")
            return cls(certificate, key)
        made = _new_authority()
        write_private(key_path, _key_pem(made.key))
        write_private(certificate_path, made.pem.decode())
        return made

    def issue(self, names: tuple[str, ...], *, common_name: str = "pykai") -> tuple[bytes, bytes]:
        """A server certificate for these host names and addresses, and its key, both as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(common_name, self.certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key).encode()


def server_context(authority: Authority, names: tuple[str, ...]) -> ssl.SSLContext:
    """TLS for a server of these names."""
    certificate, key = authority.issue(names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The ssl module reads certificates from files only; the folder is private and removed at once.
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "server.pem"
        write_private(chain, (certificate + key).decode())
        context.load_cert_chain(chain)
    return context


def _new_authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pykai-ca")])
    certificate = (
        _builder("pykai-ca", name, key)
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
    return Authority(certificate, key)


def _builder(common_name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _YEARS)
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
