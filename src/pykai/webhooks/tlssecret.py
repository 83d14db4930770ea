"""The Secret with the certificate of the webhooks: what it holds, and what is to be done about it; pure.

    serving.crt, serving.key   the pair that is served
    next.crt, next.key         the pair that follows it, while API servers learn to trust it
    ca.crt                     the authorities that API servers shall trust: of the pair before, this one and the next
    tls.crt, tls.key           a pair that someone else has put there; it is served before ours

A rotation has two steps, so that no admission fails.  *Stage*: a pair of a new authority is stored as the next one, and
its authority is added to those that are trusted.  *Promote*: once every registration has had these authorities for a
while, the next pair is served.  The authority of the pair before stays, for replicas that have not seen the change.

Each pair has an authority of its own, whose key is never stored: the Secret can reveal one server certificate for a
quarter of a year, and no key that signs others.

A pair that someone else has put there (KAI Scheduler, cert-manager, an administrator) is served and trusted like one of
ours as long as it has the right names.  Ours is never under its keys: KAI Scheduler makes a certificate for ten years
where it finds no `tls.crt`, and would serve one of ours, which it does not renew, until it ends and pods are refused.

Statements: operations:O-43, OD-1; install:back.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, TypeGuard

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from pykai.api import names
from pykai.kube.certificates import CertificateAuthority, CertificatePair, pem_of
from pykai.webhooks.fields import object_at

LIFETIME: Final = timedelta(days=90)
#: of the life of a pair is left when it is replaced; cert-manager replaces at a third, and comes first
_REPLACED_AT: Final = 1 / 4
#: authorities that are trusted at a time
_MOST_AUTHORITIES: Final = 4

_CURRENT: Final = ("serving.crt", "serving.key")
_GIVEN: Final = ("tls.crt", "tls.key")
#: the type of a Secret that must have the keys of `_GIVEN`; KAI Scheduler and we make none of it
_TLS_TYPE: Final = "kubernetes.io/tls"
_NEXT: Final = ("next.crt", "next.key")
_AUTHORITIES: Final = "ca.crt"


class CertificateStep(Enum):
    """What is to be done about the Secret."""

    KEEP = "keep"
    #: store a pair and serve it at once: there is none that works
    FILL = "fill"
    STAGE = "stage"
    PROMOTE = "promote"


@dataclass(frozen=True, slots=True)
class TlsSecret:
    """The Secret, as far as it could be read."""

    current: CertificatePair | None = None
    next: CertificatePair | None = None
    #: certificates that API servers shall trust, oldest first
    authorities: tuple[x509.Certificate, ...] = ()
    rotation_requested: bool = False

    @property
    def bundle(self) -> bytes:
        """What goes into the registrations of the webhooks, as PEM."""
        return b"".join(map(pem_of, self.authorities))


def read_secret(document: Mapping[str, Any]) -> TlsSecret:
    """The content of a Secret; what cannot be read counts as absent."""
    data = object_at(document, "data")
    annotations = object_at(object_at(document, "metadata"), "annotations")
    # Ours takes the place of a given one, so one that is there came after it.
    current, next_pair = _pair(data, _GIVEN) or _pair(data, _CURRENT), _pair(data, _NEXT)
    authorities = _certificates(_decoded(data, _AUTHORITIES))
    for pair in (current, next_pair):
        if pair is not None and not any(_has_signed(each, pair) for each in authorities):
            # A pair of someone else: KAI Scheduler's certificate signs itself, and is its own authority.
            authorities += _certificates(pair.certificate)
    return TlsSecret(current, next_pair, tuple(authorities), names.ROTATE_CERTIFICATE_ANNOTATION in annotations)


def next_step(secret: TlsSecret, hosts: Collection[str], now: datetime, *, is_trusted: bool) -> CertificateStep:
    """What is to be done; `is_trusted`: every registration has had the authorities for long enough."""
    if not _is_usable(secret.current, now):
        return CertificateStep.PROMOTE if _is_usable(secret.next, now) else CertificateStep.FILL
    if not secret.rotation_requested and not _is_due(secret.current, hosts, now):
        return CertificateStep.KEEP
    if not _is_usable(secret.next, now) or not _has_hosts(secret.next, hosts):
        return CertificateStep.STAGE
    return CertificateStep.PROMOTE if is_trusted else CertificateStep.KEEP


def changed_secret(
    document: Mapping[str, Any],
    step: CertificateStep,
    hosts: Collection[str],
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> dict[str, Any]:
    """The Secret after a step, with the version of the given one: a newer one cannot be overwritten."""
    secret = read_secret(document)
    data = dict(object_at(document, "data"))
    metadata = dict(object_at(document, "metadata"))
    serving = _GIVEN if document.get("type") == _TLS_TYPE else _CURRENT
    if step in (CertificateStep.PROMOTE, CertificateStep.FILL):
        for given in _GIVEN:
            data.pop(given, None)
    if step is CertificateStep.PROMOTE:
        for kept, staged in zip(serving, _NEXT, strict=True):
            data[kept] = data.pop(staged)
        annotations = dict(object_at(metadata, "annotations"))
        annotations.pop(names.ROTATE_CERTIFICATE_ANNOTATION, None)
        metadata["annotations"] = annotations
    elif step in (CertificateStep.FILL, CertificateStep.STAGE):
        # Unique names: verifiers look an authority up by its name.
        authority = CertificateAuthority.create(f"kai-admission-{secrets.token_hex(8)}", lifetime, now)
        pair = authority.issue(hosts, common_name=next(iter(hosts)), lifetime=lifetime, now=now)
        target = serving if step is CertificateStep.FILL else _NEXT
        # The authority follows in the chain: KAI Scheduler trusts what it finds in tls.crt.
        data[target[0]] = _encoded(pair.certificate + authority.pem)
        data[target[1]] = _encoded(pair.key)
        trusted = _trusted((*secret.authorities, authority.certificate), now)
        data[_AUTHORITIES] = _encoded(b"".join(map(pem_of, trusted)))
    return {**document, "metadata": metadata, "data": data}


def expiry(pair: CertificatePair) -> datetime:
    """When the certificate of a pair ends."""
    return _leaf(pair).not_valid_after_utc


def due_at(pair: CertificatePair) -> datetime:
    """When a pair is to be replaced."""
    leaf = _leaf(pair)
    return leaf.not_valid_after_utc - (leaf.not_valid_after_utc - leaf.not_valid_before_utc) * _REPLACED_AT


def _trusted(authorities: Iterable[x509.Certificate], now: datetime) -> list[x509.Certificate]:
    """The newest authorities that have not expired, each once."""
    valid = [each for each in dict.fromkeys(authorities) if each.not_valid_after_utc > now]
    return valid[-_MOST_AUTHORITIES:]


def _is_due(pair: CertificatePair, hosts: Collection[str], now: datetime) -> bool:
    return now >= due_at(pair) or not _has_hosts(pair, hosts)


def _is_usable(pair: CertificatePair | None, now: datetime) -> TypeGuard[CertificatePair]:
    return pair is not None and expiry(pair) > now


def _has_hosts(pair: CertificatePair, hosts: Iterable[str]) -> bool:
    try:
        names = _leaf(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    return known.issuperset(hosts)


def _has_signed(authority: x509.Certificate, pair: CertificatePair) -> bool:
    try:
        _leaf(pair).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _leaf(pair: CertificatePair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def _pair(data: Mapping[str, Any], keys: tuple[str, str]) -> CertificatePair | None:
    """The pair under two keys, if it is one: a certificate and the key it belongs to."""
    certificate, key = (_decoded(data, each) for each in keys)
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
        return None
    return CertificatePair(certificate, key)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _decoded(data: Mapping[str, Any], key: str) -> bytes:
    value = data.get(key)
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
