"""Webhooks: are they registered, does something answer, and do API servers trust its certificate?

A registration whose service is gone blocks every object that it is about (its failure policy is Fail), so those that an
earlier KAI Scheduler has left count too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pykai.api import names
from pykai.doctor.documents import CertificateSecret, RegisteredWebhook, WebhookRegistration
from pykai.doctor.facts import CERTIFICATE, ENDPOINTS, MUTATING, SERVICES, VALIDATING, Facts, Source
from pykai.doctor.findings import Finding, Severity, listed
from pykai.operator.desired.state import registration
from pykai.operator.webhooks import webhook_configurations
from pykai.webhooks.table import ADMISSION_SERVICE, service_hosts

_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_OUR_GROUPS: Final = frozenset({names.SCHEDULING_GROUP, names.KAI_GROUP})
_PREFIXES: Final = ("kai-queue-validation-", "kai-podgroup-validation-", "mutating-kai-", "validating-kai-")
#: a certificate that ends within this time should have been replaced weeks ago
_SOON: Final = timedelta(days=7)


def _registrations(facts: Facts) -> Iterator[tuple[str, WebhookRegistration]]:
    """Registrations about our kinds, or under names of KAI Scheduler's."""
    sources: tuple[Source[WebhookRegistration], ...] = (MUTATING, VALIDATING)
    for source in sources:
        for each in facts.all(source):
            groups = {group for webhook in each.webhooks for rule in webhook.rules for group in rule.api_groups}
            if each.metadata.name.startswith(_PREFIXES) or not groups.isdisjoint(_OUR_GROUPS):
                yield f"{source.resource.kind} {each.metadata.name}", each


def unregistered(facts: Facts) -> Iterator[Finding]:
    """Without the webhooks, pods that share GPUs are not completed, and wrong queues and groups are stored."""
    there = {where for where, _ in _registrations(facts)}
    wanted = (
        f"{each['kind']} {each['metadata']['name']}" for each in webhook_configurations(registration(facts.settings))
    )
    missing = [each for each in wanted if each not in there]
    if missing:
        what = "Not registered: pods that share GPUs do not run, and queues and groups are not checked."
        figure = f"{len(missing)} missing"
        fix = facts.manifests("--admission", "service")
        yield Finding(Severity.WARNING, "webhook-missing", listed(missing), what, fix, figure)


def unanswered(facts: Facts) -> Iterator[Finding]:
    """Registrations whose Service, or whose pods, are missing."""
    services = {(each.metadata.namespace, each.metadata.name): each for each in facts.all(SERVICES)}
    ready = {
        (each.metadata.namespace, each.metadata.labels.get(_SERVICE_LABEL, ""))
        for each in facts.all(ENDPOINTS)
        if any(endpoint.conditions.ready is not False for endpoint in each.endpoints)
    }
    for where, found in _registrations(facts):
        for key, webhook in _called(found).items():
            severity = Severity.ERROR if webhook.failure_policy == "Fail" else Severity.WARNING
            place, name = key
            figure = f"failurePolicy {webhook.failure_policy}"
            if key not in services:
                what = f"It calls Service {place}/{name}, which does not exist: what it is about cannot be written."
                fix = f"Start the service, or: kubectl delete {where.replace(' ', '/', 1).lower()}"
                yield Finding(severity, "webhook-without-service", where, what, fix, figure)
            elif facts.serves(ENDPOINTS) and services[key].spec.type != "ExternalName" and key not in ready:
                what = f"Service {place}/{name} has no ready pod: what the webhook is about cannot be written."
                fix = f"kubectl -n {place} get pods -l app={name}; if none runs, start it or delete the registration."
                yield Finding(severity, "webhook-without-endpoints", where, what, fix, figure)


def _called(registered: WebhookRegistration) -> dict[tuple[str, str], RegisteredWebhook]:
    """The Services that a registration calls, each with the strictest webhook."""
    found: dict[tuple[str, str], RegisteredWebhook] = {}
    for each in registered.webhooks:
        service = each.client_config.service
        if service is not None:
            key = (service.namespace, service.name)
            if key not in found or each.failure_policy == "Fail":
                found[key] = each
    return found


def untrusted(facts: Facts) -> Iterator[Finding]:
    """Registrations whose authorities are missing, have ended, or did not sign the certificate that is served."""
    served = _served(facts)
    for where, found in _registrations(facts):
        bundles = {each.client_config.ca_bundle for each in found.webhooks}
        calls_us = (facts.namespace, ADMISSION_SERVICE) in _called(found)
        for bundle in sorted(bundles):
            yield from _judged(where, bundle, served if calls_us else None, facts.cluster_time)


def _judged(where: str, bundle: str, served: x509.Certificate | None, now: datetime) -> Iterator[Finding]:
    fix = "Start the admission service, which fills it in; or annotate its Secret with "
    fix += names.ROTATE_CERTIFICATE_ANNOTATION
    authorities = _certificates(bundle)
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    if not authorities:
        what = "caBundle holds no certificate, so API servers trust no answer."
        yield Finding(Severity.ERROR, "webhook-authority", where, what, fix)
    elif not valid:
        ended = max(each.not_valid_after_utc for each in authorities)
        what = "Every authority in caBundle has expired."
        yield Finding(Severity.ERROR, "webhook-authority", where, what, fix, f"ended {ended:%Y-%m-%d}")
    elif served is not None and not any(_has_signed(each, served) for each in valid):
        what = "No authority in caBundle has signed the certificate that the admission service has."
        yield Finding(Severity.ERROR, "webhook-authority", where, what, fix)


def certificate(facts: Facts) -> Iterator[Finding]:
    """The certificate of the admission service: its end and its names."""
    for secret in facts.all(CERTIFICATE):
        where = f"Secret {secret.metadata.namespace}/{secret.metadata.name}"
        leaf = _leaf(secret)
        if leaf is None:
            what = "It holds no certificate: the admission service has never run, or may not write it."
            fix = f"Start it: kubectl -n {facts.namespace} get pods -l app={ADMISSION_SERVICE}"
            yield Finding(Severity.WARNING, "certificate-missing", where, what, fix)
            continue
        yield from _ending(where, leaf.not_valid_after_utc, facts.cluster_time)
        lacking = set(service_hosts(facts.namespace)).difference(_hosts(leaf))
        if lacking:
            what = f"The certificate has not the name {listed(lacking)}, under which API servers call."
            fix = f"Annotate the Secret with {names.ROTATE_CERTIFICATE_ANNOTATION}, or delete its data."
            yield Finding(Severity.ERROR, "certificate-names", where, what, fix)


def _ending(where: str, end: datetime, now: datetime) -> Iterator[Finding]:
    left = end - now
    if left > _SOON:
        return
    fix = f"The admission service replaces it: is it running? Else annotate {names.ROTATE_CERTIFICATE_ANNOTATION}"
    if left <= timedelta():
        what, severity = f"The certificate of the webhooks has expired at {end:%Y-%m-%d %H:%M} UTC.", Severity.ERROR
    else:
        what, severity = f"The certificate of the webhooks ends at {end:%Y-%m-%d %H:%M} UTC.", Severity.WARNING
    yield Finding(severity, "certificate-expires", where, what, fix, f"{left.total_seconds() / 86400:.1f} days left")


def _served(facts: Facts) -> x509.Certificate | None:
    for secret in facts.all(CERTIFICATE):
        if secret.metadata.namespace == facts.namespace:
            return _leaf(secret)
    return None


def _leaf(secret: CertificateSecret) -> x509.Certificate | None:
    """The certificate that is served; one that is given goes before ours (`webhooks.tlssecret`)."""
    return next(iter(_certificates(secret.data.given) or _certificates(secret.data.own)), None)


def _certificates(encoded: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(base64.b64decode(encoded))
    except ValueError:
        return []


def _hosts(leaf: x509.Certificate) -> list[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return found.get_values_for_type(x509.DNSName)


def _has_signed(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    if authority == leaf:
        # KAI Scheduler's certificate signs itself.
        return True
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
