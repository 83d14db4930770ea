"""The server's own certificate authority, created at first start.

kubectl sends a bearer token only over HTTPS and trusts the CA in its kubeconfig, so the server creates a CA, puts it
into the kubeconfig and signs a certificate for its host names. The CA stays in the data folder; each start issues a new
server certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pykai.kube.certificates import CertificateAuthority, key_pem, load_pair
from pykai.lab.apiserver.users import write_private

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_NAME: Final = "pykai-ca"


def load_authority(folder: Path | None) -> CertificateAuthority:
    """The authority of the folder, created at first use; without a folder it lives as long as the server."""
    if folder is None:
        return CertificateAuthority.create(_NAME)
    certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
    if certificate_path.exists() and key_path.exists():
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_path} is not a key that this server made; move it and {certificate_path} away")
        return CertificateAuthority(certificate, key)
    made = CertificateAuthority.create(_NAME)
    write_private(key_path, key_pem(made.key).decode())
    write_private(certificate_path, made.pem.decode())
    return made


def server_context(authority: CertificateAuthority, names: tuple[str, ...]) -> ssl.SSLContext:
    """TLS for a server of these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, authority.issue(names))
    return context
