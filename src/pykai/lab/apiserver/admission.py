"""Admission: functions and webhooks that may change or refuse a write before it is stored.

First functions in this process (the gpusharing mutation, for one), then the webhooks of the stored
MutatingWebhookConfigurations and ValidatingWebhookConfigurations, in the order of their names. A webhook gets an
AdmissionReview over HTTPS; it may answer with a JSON patch, warnings, or a refusal. Its failurePolicy decides when it
does not answer.

Functions in the process see writes of main resources only, webhooks whatever their rules name. Our own policies
(`policyenforcer`), and the rule that a role holds no right which its writer lacks (`rbac`), come before both.

Subtle: a webhook with a `service` is unreachable without pods that serve; it counts as one that does not answer. Match
conditions need the CEL library (extra `dra`); the failurePolicy also covers conditions that cannot be evaluated.

Statements: apiserver:webhooks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import aiohttp
import msgspec

from pykai.api.unstructured import JsonObject
from pykai.kube import errors
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.matchconditions import evaluate_condition
from pykai.lab.apiserver.metadata import new_uid
from pykai.lab.apiserver.patches import PatchError, json_patch
from pykai.lab.apiserver.policyenforcer import PolicyEnforcer
from pykai.lab.apiserver.rbac import GROUP as RBAC_GROUP
from pykai.lab.apiserver.rbac import Authorizer
from pykai.lab.apiserver.selectors import selector_matches
from pykai.lab.apiserver.storage import ObjectStorage
from pykai.lab.apiserver.users import MASTERS

MUTATING: Final[StoreKey] = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING: Final[StoreKey] = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
_DEFAULT_TIMEOUT_S: Final = 10
_log = logging.getLogger(__name__)


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The write under review, in process or over HTTPS."""

    #: CREATE, UPDATE or DELETE
    operation: str
    group: str
    version: str
    resource: str
    kind: str
    namespace: str
    name: str
    subresource: str
    #: None for DELETE
    object: JsonObject | None
    #: None for CREATE
    old_object: JsonObject | None
    user: str
    dry_run: bool
    #: groups of the user
    groups: tuple[str, ...] = ()


#: returns the object to store instead, or None to leave it; raises an ApiError to refuse
Mutator = Callable[[AdmissionRequest], JsonObject | None]
#: raises an ApiError to refuse
Validator = Callable[[AdmissionRequest], None]


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration."""

    name: str
    url: str
    #: why it cannot be called at all
    unreachable: str
    ca_bundle: str
    rules: tuple[Mapping[str, Any], ...]
    namespace_selector: Mapping[str, Any]
    object_selector: Mapping[str, Any]
    match_conditions: tuple[Mapping[str, Any], ...]
    fails_open: bool
    timeout_s: float
    side_effects: str


class Admission:
    """In-process admission and webhooks."""

    def __init__(
        self, storage: ObjectStorage, mutators: Iterable[Mutator] = (), validators: Iterable[Validator] = ()
    ) -> None:
        self._storage = storage
        self.authorizer = Authorizer(storage)
        self._guards = PolicyEnforcer(storage, self.authorizer)
        self._mutators = tuple(mutators)
        self._validators = tuple(validators)
        self._webhooks: dict[StoreKey, tuple[Webhook, ...]] = {MUTATING: (), VALIDATING: ()}
        self._session: aiohttp.ClientSession | None = None
        for store in (MUTATING, VALIDATING):
            self._load_webhooks(store)
            # mypy infers no type for a lambda with a default argument.
            storage.collection(store).listeners.append(lambda _, store=store: self._load_webhooks(store))  # type: ignore[misc]

    def is_needed(self, call: Call) -> bool:
        """Whether any function, policy or webhook concerns this write."""
        if self._guards.is_needed(call) or (call.kind.group == RBAC_GROUP and MASTERS not in call.user.groups):
            return True
        if self._webhooks[MUTATING] or self._webhooks[VALIDATING]:
            return call.kind.store not in (MUTATING, VALIDATING)
        return bool(self._mutators or self._validators) and not call.subresource

    async def mutate(self, call: Call, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        """The object after mutation; the same one if nothing changed."""
        if not call.subresource:
            for mutator in self._mutators:
                changed = mutator(_request(call, obj, old))
                if changed is not None:
                    obj = changed
        for webhook in self._webhooks[MUTATING]:
            request = _request(call, obj, old)
            if await self._matches(webhook, request, call):
                obj = await self._call(webhook, request, call) or obj
        return obj

    async def validate(self, call: Call, obj: JsonObject | None, old: JsonObject | None) -> None:
        """Raise the first refusal."""
        if obj is not None:
            self.authorizer.check_grant(call.user, call.kind.store, obj, old)
        self._guards.check(call, obj, old)
        request = _request(call, obj, old)
        if not call.subresource:
            for validator in self._validators:
                validator(request)
        if obj is None:
            for webhook in self._webhooks[MUTATING]:
                if await self._matches(webhook, request, call):
                    await self._call(webhook, request, call)
        for webhook in self._webhooks[VALIDATING]:
            if await self._matches(webhook, request, call):
                await self._call(webhook, request, call)

    def check_subresource(self, call: Call) -> None:
        """403 if a policy refuses a binding or an eviction; webhooks do not see these."""
        self._guards.check(call, None, None)

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    def _load_webhooks(self, store: StoreKey) -> None:
        collection = self._storage.collection(store)
        webhooks: list[Webhook] = []
        for key in collection.keys:
            for entry in collection.records[key].object().get("webhooks") or ():
                try:
                    webhooks.append(_webhook(entry))
                except (TypeError, ValueError, AttributeError) as error:
                    _log.warning("a webhook of %s is ignored: %s", key, error)
        self._webhooks[store] = tuple(webhooks)

    async def _matches(self, webhook: Webhook, request: AdmissionRequest, call: Call) -> bool:
        if not any(_rule_matches(rule, request, call.kind.namespaced) for rule in webhook.rules):
            return False
        if webhook.namespace_selector and (request.namespace or request.resource == "namespaces"):
            name = request.namespace or request.name
            namespace = self._storage.get(("", "namespaces"), name)
            labels = namespace.labels if namespace is not None else _labels(request.object or request.old_object)
            if not selector_matches(webhook.namespace_selector, labels):
                return False
        if webhook.object_selector and not any(
            selector_matches(webhook.object_selector, _labels(obj))
            for obj in (request.object, request.old_object)
            if obj is not None
        ):
            return False
        for condition in webhook.match_conditions:
            try:
                if not evaluate_condition(str(condition.get("expression", "")), _variables(request)):
                    return False
            except ValueError as error:
                text = f"match condition {condition.get('name')!r} cannot be evaluated: {error}"
                if webhook.fails_open:
                    _log.warning("webhook %s is not called: %s", webhook.name, text)
                    return False
                raise _call_failed(webhook, text) from None
        return True

    async def _call(self, webhook: Webhook, request: AdmissionRequest, call: Call) -> JsonObject | None:
        """The changed object, or None; raises the refusal."""
        if call.dry_run and webhook.side_effects not in ("None", "NoneOnDryRun"):
            text = f'admission webhook "{webhook.name}" does not support dry run'
            raise errors.BadRequest(400, "BadRequest", text)
        uid = new_uid()
        try:
            if webhook.unreachable:
                raise ValueError(webhook.unreachable)
            answer = await self._post(webhook, _review(uid, request, call))
            if not isinstance(answer, dict) or not isinstance(answer.get("response"), dict):
                raise ValueError("the answer is not an AdmissionReview with a response")
            response = answer["response"]
            if response.get("uid") != uid:
                raise ValueError("the answer is for another request (its uid differs)")
            call.warnings += [str(text) for text in response.get("warnings") or ()]
            if response.get("allowed") is not True:
                raise _denied(webhook, response.get("status") or {})
            if response.get("patch") and request.object is not None:
                patch = json.loads(base64.b64decode(response["patch"], validate=True))
                return json_patch(request.object, patch)
            return None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, PatchError, binascii.Error) as error:
            text = str(error) or type(error).__name__
            if webhook.fails_open:
                _log.warning("webhook %s failed and is skipped (failurePolicy Ignore): %s", webhook.name, text)
                return None
            raise _call_failed(webhook, text) from None

    async def _post(self, webhook: Webhook, review: JsonObject) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with asyncio.timeout(webhook.timeout_s):
            async with self._session.post(
                webhook.url, json=review, ssl=_tls_context(webhook.ca_bundle), allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise ValueError(f"the webhook answered with HTTP {response.status}")
                return await response.json(content_type=None)


@lru_cache(maxsize=32)
def _tls_context(authority: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority or None)


def _webhook(entry: Mapping[str, Any]) -> Webhook:
    client = entry.get("clientConfig") or {}
    url = str(client.get("url") or "")
    unreachable = ""
    if not url:
        unreachable = "clientConfig.service cannot be reached by this server: no pods serve here; use clientConfig.url"
    elif not url.startswith("https://"):
        unreachable = f"clientConfig.url must begin with https://, not {url}"
    bundle = client.get("caBundle")
    return Webhook(
        str(entry.get("name", "")),
        url,
        unreachable,
        base64.b64decode(bundle).decode() if bundle else "",
        tuple(entry.get("rules") or ()),
        entry.get("namespaceSelector") or {},
        entry.get("objectSelector") or {},
        tuple(entry.get("matchConditions") or ()),
        entry.get("failurePolicy") == "Ignore",
        float(entry.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S),
        str(entry.get("sideEffects", "")),
    )


def _rule_matches(rule: Mapping[str, Any], request: AdmissionRequest, namespaced: bool) -> bool:
    def listed(field: str, value: str) -> bool:
        values = rule.get(field) or ()
        return "*" in values or value in values

    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != namespaced:
        return False
    if not (
        listed("operations", request.operation)
        and listed("apiGroups", request.group)
        and listed("apiVersions", request.version)
    ):
        return False
    for pattern in rule.get("resources") or ():
        resource, slash, subresource = str(pattern).partition("/")
        if resource in ("*", request.resource):
            if subresource == "*" or (subresource == request.subresource and bool(slash) == bool(request.subresource)):
                return True
    return False


def _request(call: Call, obj: JsonObject | None, old: JsonObject | None) -> AdmissionRequest:
    operation = "DELETE" if obj is None else "CREATE" if old is None else "UPDATE"
    kind = call.kind
    return AdmissionRequest(
        operation,
        kind.group,
        kind.version,
        kind.plural,
        kind.kind,
        call.namespace,
        call.name,
        call.subresource,
        obj,
        old,
        call.user.name,
        call.dry_run,
        call.user.groups,
    )


def _variables(request: AdmissionRequest) -> JsonObject:
    return {
        "object": request.object,
        "oldObject": request.old_object,
        "request": {
            "operation": request.operation,
            "name": request.name,
            "namespace": request.namespace,
            "resource": {"group": request.group, "version": request.version, "resource": request.resource},
            "kind": {"group": request.group, "version": request.version, "kind": request.kind},
            "subResource": request.subresource,
            "userInfo": {"username": request.user, "groups": list(request.groups)},
            "dryRun": request.dry_run,
        },
    }


def _review(uid: str, request: AdmissionRequest, call: Call) -> JsonObject:
    kind = {"group": request.group, "version": request.version, "kind": request.kind}
    resource = {"group": request.group, "version": request.version, "resource": request.resource}
    review_request: JsonObject = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": request.name,
        "operation": request.operation,
        "userInfo": {"username": request.user, "groups": list(request.groups)},
        "object": request.object,
        "oldObject": request.old_object,
        "dryRun": request.dry_run,
        "options": None,
    }
    if request.namespace:
        review_request["namespace"] = request.namespace
    if request.subresource:
        review_request["subResource"] = review_request["requestSubResource"] = request.subresource
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review_request}


def _denied(webhook: Webhook, status: Mapping[str, Any]) -> errors.ApiError:
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code < 600 else 400
    why = status.get("message") or status.get("reason")
    text = f'admission webhook "{webhook.name}" denied the request'
    text += f": {why}" if why else " without explanation"
    reason = str(status.get("reason") or ("Forbidden" if code == 403 else ""))
    return errors.from_status(code, {"reason": reason, "message": text, "details": status.get("details")})


def _call_failed(webhook: Webhook, text: str) -> errors.ApiError:
    message = f'Internal error occurred: failed calling webhook "{webhook.name}": {text}'
    return errors.ServerError(500, "InternalError", message)


def _labels(obj: JsonObject | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}
