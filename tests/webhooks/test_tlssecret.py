"""What the Secret of the webhooks' certificate holds after each step: operations:O-43, OD-1."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from pykai.api import names
from pykai.api.names import ROTATE_CERTIFICATE_ANNOTATION
from pykai.kube.certificates import CertificateAuthority, key_pem, load_pair, pem_of
from pykai.webhooks.table import service_hosts
from pykai.webhooks.tlssecret import (
    LIFETIME,
    CertificateStep,
    TlsSecret,
    changed_secret,
    due_at,
    next_step,
    read_secret,
)
from tests.kube.tlsclient import handshake

HOSTS = service_hosts()
NOW = datetime.now(UTC)
EMPTY: dict[str, Any] = {"metadata": {"name": "s", "resourceVersion": "7"}}
FILLED = changed_secret(EMPTY, CertificateStep.FILL, HOSTS, NOW)


def step_of(
    document: dict[str, Any], *, hosts: tuple[str, ...] = HOSTS, now: datetime = NOW, trusted: bool = False
) -> CertificateStep:
    return next_step(read_secret(document), hosts, now, is_trusted=trusted)


def requested(document: dict[str, Any]) -> dict[str, Any]:
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": {ROTATE_CERTIFICATE_ANNOTATION: "now", "a": "b"}},
    }


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def is_served_to(secret: TlsSecret, trusting: TlsSecret, host: str = HOSTS[0]) -> bool:
    """Whether a client that trusts one bundle accepts the certificate of another Secret."""
    assert secret.current is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(server, secret.current)
    return handshake(server, ssl.create_default_context(cadata=trusting.bundle.decode()), host)


def test_an_empty_secret_is_filled() -> None:
    assert step_of(EMPTY) is CertificateStep.FILL
    found = read_secret(FILLED)
    assert step_of(FILLED) is CertificateStep.KEEP
    assert FILLED["metadata"]["resourceVersion"] == "7"
    assert set(FILLED["data"]) == {"serving.crt", "serving.key", "ca.crt"}
    for host in HOSTS:
        assert is_served_to(found, found, host)
    assert not is_served_to(found, found, "elsewhere.svc")


def test_a_rotation_never_serves_what_is_not_trusted() -> None:
    """operations:OD-1."""
    staged = changed_secret(requested(FILLED), CertificateStep.STAGE, HOSTS, NOW)
    assert staged["data"]["serving.crt"] == FILLED["data"]["serving.crt"]
    assert step_of(staged) is CertificateStep.KEEP
    assert step_of(staged, trusted=True) is CertificateStep.PROMOTE
    promoted = changed_secret(staged, CertificateStep.PROMOTE, HOSTS, NOW)
    assert promoted["metadata"]["annotations"] == {"a": "b"}
    assert set(promoted["data"]) == {"serving.crt", "serving.key", "ca.crt"}
    assert promoted["data"]["serving.crt"] == staged["data"]["next.crt"]
    assert step_of(promoted) is CertificateStep.KEEP
    before, between, after = map(read_secret, (FILLED, staged, promoted))
    # Trust in the new certificate comes first, trust in the old one stays.
    for secret in (before, between, after):
        assert is_served_to(secret, between)
        assert is_served_to(secret, after)
    assert not is_served_to(after, before)


def test_the_authorities_do_not_pile_up() -> None:
    document = FILLED
    for _ in range(6):
        document = changed_secret(document, CertificateStep.STAGE, HOSTS, NOW)
        document = changed_secret(document, CertificateStep.PROMOTE, HOSTS, NOW)
    assert len(read_secret(document).authorities) == 4
    later = NOW + LIFETIME + timedelta(days=1)
    assert len(read_secret(changed_secret(document, CertificateStep.FILL, HOSTS, later)).authorities) == 1


def test_no_key_of_an_authority_is_stored() -> None:
    keys = [base64.b64decode(value) for value in FILLED["data"].values() if b"PRIVATE KEY" in base64.b64decode(value)]
    assert len(keys) == 1
    (authority,) = read_secret(FILLED).authorities
    leaf = x509.load_pem_x509_certificate(base64.b64decode(FILLED["data"]["serving.crt"]))
    assert leaf.public_key() != authority.public_key()
    current = read_secret(FILLED).current
    assert "PRIVATE" not in repr(current)


def test_a_certificate_is_replaced_before_it_ends() -> None:
    current = read_secret(FILLED).current
    assert current is not None
    due = due_at(current)
    assert NOW + LIFETIME * 0.7 < due < NOW + LIFETIME * 0.8
    assert step_of(FILLED, now=due - timedelta(minutes=1)) is CertificateStep.KEEP
    assert step_of(FILLED, now=due) is CertificateStep.STAGE
    staged = changed_secret(FILLED, CertificateStep.STAGE, HOSTS, due)
    assert step_of(staged, now=due) is CertificateStep.KEEP
    assert step_of(staged, now=due, trusted=True) is CertificateStep.PROMOTE
    # Nothing is left to wait for once the one that is served has ended.
    longer = changed_secret(FILLED, CertificateStep.STAGE, HOSTS, due, LIFETIME * 2)
    assert step_of(longer, now=NOW + LIFETIME) is CertificateStep.PROMOTE
    assert step_of(FILLED, now=NOW + LIFETIME) is CertificateStep.FILL


def test_another_name_takes_another_certificate() -> None:
    hosts = (*HOSTS, "10.0.0.5")
    assert step_of(FILLED, hosts=hosts) is CertificateStep.STAGE
    staged = changed_secret(FILLED, CertificateStep.STAGE, hosts, NOW)
    assert step_of(staged, hosts=hosts, trusted=True) is CertificateStep.PROMOTE
    assert step_of(staged, hosts=(*hosts, "10.0.0.6"), trusted=True) is CertificateStep.STAGE


def test_a_certificate_that_names_no_host_is_replaced() -> None:
    authority = CertificateAuthority.create("by hand")
    builder = x509.CertificateBuilder(authority.certificate.subject, authority.certificate.subject)
    builder = builder.public_key(authority.key.public_key()).serial_number(1)
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + LIFETIME)
    bare = pem_of(builder.sign(authority.key, hashes.SHA256()))
    data = {"tls.crt": encoded(bare), "tls.key": encoded(key_pem(authority.key))}
    assert step_of({"metadata": {"name": "s"}, "data": data}, now=NOW + timedelta(seconds=1)) is CertificateStep.STAGE


def kais_secret(*hosts: str) -> dict[str, Any]:
    """A certificate that signs itself, as KAI Scheduler's operator makes it, without `ca.crt`."""
    authority = CertificateAuthority.create("admission", timedelta(days=3650))
    pair = authority.issue(hosts, lifetime=timedelta(days=3650))
    data = {"tls.crt": encoded(pair.certificate + authority.pem), "tls.key": encoded(pair.key)}
    return {"metadata": {"name": "s"}, "data": data}


def test_a_secret_of_kai_is_served_until_ours_is_trusted() -> None:
    """operations:O-43."""
    found = kais_secret(HOSTS[0])
    assert step_of(found) is CertificateStep.KEEP
    found["metadata"]["annotations"] = {names.ROTATE_CERTIFICATE_ANNOTATION: "now"}
    assert step_of(found) is CertificateStep.STAGE
    staged = changed_secret(found, CertificateStep.STAGE, HOSTS, NOW)
    between = read_secret(staged)
    assert is_served_to(read_secret(found), between)
    promoted = read_secret(changed_secret(staged, CertificateStep.PROMOTE, HOSTS, NOW))
    assert promoted.current == between.next
    assert is_served_to(promoted, between)
    assert is_served_to(read_secret(found), promoted)


def test_a_certificate_put_there_by_hand_is_kept_and_trusted() -> None:
    """operations:O-43."""
    by_hand = kais_secret(*HOSTS)
    replaced = {**FILLED, "data": {**FILLED["data"], **by_hand["data"]}}
    assert step_of(replaced) is CertificateStep.KEEP
    assert read_secret(replaced).current == read_secret(by_hand).current
    assert is_served_to(read_secret(replaced), read_secret(replaced))


def kai_takes_over(document: dict[str, Any]) -> dict[str, Any]:
    """What KAI Scheduler's operator makes of a Secret: its own certificate, unless it finds one."""
    return document if "tls.crt" in document.get("data", {}) else {**document, "data": kais_secret(HOSTS[0])["data"]}


def life_left(document: dict[str, Any]) -> timedelta:
    """Of what KAI Scheduler serves; it renews nothing."""
    certificate = base64.b64decode(document["data"]["tls.crt"])
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc - NOW


def test_kai_gets_a_certificate_of_its_own_back() -> None:
    """install:back: one of ours would end within a quarter of a year, and then all pods are refused."""
    staged = changed_secret(requested(FILLED), CertificateStep.STAGE, HOSTS, NOW)
    promoted = changed_secret(staged, CertificateStep.PROMOTE, HOSTS, NOW)
    of_kai = kais_secret(HOSTS[0])
    staged_over_kai = changed_secret(requested(of_kai), CertificateStep.STAGE, HOSTS, NOW)
    promoted_over_kai = changed_secret(staged_over_kai, CertificateStep.PROMOTE, HOSTS, NOW)
    for left in (EMPTY, FILLED, staged, promoted, of_kai, staged_over_kai, promoted_over_kai):
        back = kai_takes_over(left)
        assert life_left(back) > timedelta(days=3000)
        # Forth again, it is served without a break.
        forth = read_secret(back)
        assert forth.current is not None
        assert encoded(forth.current.certificate) == back["data"]["tls.crt"]
        assert is_served_to(forth, forth)


def test_a_secret_that_must_have_the_keys_of_kubernetes_keeps_them() -> None:
    """The API server refuses a Secret of this type without them."""
    made = {**kais_secret(HOSTS[0]), "type": "kubernetes.io/tls"}
    staged = changed_secret(requested(made), CertificateStep.STAGE, HOSTS, NOW)
    promoted = changed_secret(staged, CertificateStep.PROMOTE, HOSTS, NOW)
    assert set(promoted["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert promoted["data"]["tls.crt"] == staged["data"]["next.crt"]
    filled = changed_secret({**EMPTY, "type": "kubernetes.io/tls"}, CertificateStep.FILL, HOSTS, NOW)
    assert is_served_to(read_secret(filled), read_secret(filled))


@pytest.mark.parametrize(
    "data",
    [
        None,
        "x",
        {"tls.crt": 1, "tls.key": []},
        {"tls.crt": "%%%", "tls.key": "é"},
        {"tls.crt": encoded(b"half"), "tls.key": encoded(b"half")},
        {**FILLED["data"], "serving.key": kais_secret("a")["data"]["tls.key"]},
        {**FILLED["data"], "serving.key": None},
        {**kais_secret("a")["data"], "tls.key": kais_secret("b")["data"]["tls.key"]},
    ],
)
def test_what_is_no_pair_is_replaced(data: Any) -> None:
    found = {"metadata": {"name": "s"}, "data": data}
    assert step_of(found) is CertificateStep.FILL
    filled = read_secret(changed_secret(found, CertificateStep.FILL, HOSTS, NOW))
    assert is_served_to(filled, filled)
