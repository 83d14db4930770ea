"""From a request to its response, for HTTPS and the local transport.

`RequestHandler.handle` resolves the path, authorises the user, and calls the reader or the writer. The body is not read
before that; `authorization_failure` needs no body at all. An `ApiError` becomes a Status; any other exception becomes a
500 that names the error, is logged, and harms no other request.

Statements: rbac:body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from pykai.api.keys import split_key
from pykai.api.unstructured import JsonObject
from pykai.kube import errors
from pykai.kube.transport import Request, Response
from pykai.lab.apiserver import accessreviews, apierrors, deletion, pods, rbac
from pykai.lab.apiserver.calls import Call, read_options
from pykai.lab.apiserver.discovery import Discovery
from pykai.lab.apiserver.negotiation import ResponseFormat, read_request_body, response_format
from pykai.lab.apiserver.patchrequests import patch_function
from pykai.lab.apiserver.rbac import Authorizer
from pykai.lab.apiserver.reader import ObjectReader
from pykai.lab.apiserver.scale import read_scale, scale_change
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.storage import StoredObject, encode
from pykai.lab.apiserver.users import MASTERS, User
from pykai.lab.apiserver.watches import Watch
from pykai.lab.apiserver.writer import ObjectWriter

_log = logging.getLogger(__name__)
_JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_CONTAINER: Final = (
    "there is no container behind this pod: the cluster is simulated, so {what} has nothing to connect to"
)


@dataclass(frozen=True, slots=True)
class StreamingResponse:
    """A streaming response: the watch to read from."""

    watch: Watch
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)


@dataclass(frozen=True, slots=True)
class _RequestTarget:
    """The target of a path, whether or not the kind exists."""

    #: verb as in roles; empty if the API does not have the method
    verb: str
    group: str
    version: str
    namespace: str
    #: plural, name, subresource
    rest: list[str]

    @property
    def name(self) -> str:
        return self.rest[1] if len(self.rest) > 1 else ""

    @property
    def resource(self) -> str:
        return f"{self.rest[0]}/{self.rest[2]}" if len(self.rest) > 2 else self.rest[0]


def _request_target(request: Request) -> _RequestTarget | str:
    """The resource of a request, or the path if it is not a resource."""
    path = unquote(request.path) if "%" in request.path else request.path
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return path
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    verb = _VERBS.get(request.method, "")
    if verb == "get" and len(rest) == 1:
        verb = "watch" if request.query.get("watch") in ("true", "1") else "list"
    elif verb == "delete" and len(rest) == 1:
        verb = "deletecollection"
    return _RequestTarget(verb, group, version, namespace, rest)


def _selected_name(selector: str) -> str:
    """The name that a field selector selects, for rules with resource names."""
    for term in selector.split(","):
        field, equals, value = term.partition("=")
        if field == "metadata.name" and equals:
            return value.removeprefix("=")
    return ""


class RequestHandler:
    """Answers requests."""

    def __init__(
        self,
        state: ServerState,
        reader: ObjectReader,
        writer: ObjectWriter,
        discovery: Discovery,
        authorizer: Authorizer,
    ) -> None:
        self._state = state
        self._storage = state.storage
        self._registry = state.registry
        self._authorizer = authorizer
        self._reader = reader
        self._writer = writer
        self._discovery = discovery
        self.closed = False

    async def handle(
        self, request: Request, user: User, *, tracked: bool, agent: str = ""
    ) -> Response | StreamingResponse:
        """The response; `tracked`: plain writes are tracked in managedFields."""
        warnings: list[str] = []
        try:
            answer = await self._dispatch(request, user, tracked, agent, warnings)
        except errors.ApiError as error:
            headers = dict(_JSON)
            if error.retry_after_s is not None:
                headers["Retry-After"] = str(max(1, int(error.retry_after_s)))
            answer = Response(error.code, encode(apierrors.status_object(error)), headers)
        except Exception as error:
            # A bug costs this request an answer 500, never the server.
            _log.exception("%s %s failed", request.method, request.path)
            text = f"{request.method} {request.path} failed in the server: {type(error).__name__}: {error}"
            broken = errors.ServerError(500, "InternalError", text)
            answer = Response(500, encode(apierrors.status_object(broken)), _JSON)
        if warnings and isinstance(answer, Response):
            shown = ", ".join('299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in warnings)
            answer = Response(answer.status, answer.body, {**answer.headers, "Warning": shown})
        return answer

    def authorization_failure(self, request: Request, user: User) -> Response | None:
        """403 if the user may not do this whatever the body says; None if the body decides."""
        try:
            self._authorize(_request_target(request), user, request)
        except errors.Forbidden as error:
            return Response(error.code, encode(apierrors.status_object(error)), _JSON)
        return None

    def _authorize(self, target: _RequestTarget | str, user: User, request: Request) -> None:
        """403 if no role of the user allows the request."""
        if MASTERS in user.groups:
            return
        if isinstance(target, str):
            verb = request.method.lower()
            if not self._authorizer.allowed_path(user, verb, target):
                raise rbac.forbidden_path(user, verb, target)
            return
        namespace, name = target.namespace, target.name
        if (target.group, target.rest[0]) == ("", "namespaces") and name:
            # A role in a namespace may allow reading that namespace.
            namespace = name
        elif not name:
            name = _selected_name(request.query.get("fieldSelector", ""))
        verb = target.verb or request.method.lower()
        if not self._authorizer.allowed(user, verb, target.group, target.resource, namespace=namespace, name=name):
            raise rbac.forbidden_resource(user, verb, target.group, target.resource, namespace=namespace, name=name)

    async def _dispatch(
        self, request: Request, user: User, tracked: bool, agent: str, warnings: list[str]
    ) -> Response | StreamingResponse:
        target = _request_target(request)
        self._authorize(target, user, request)
        if isinstance(target, str):
            return self._discovery.answer(request, target.strip("/").split("/"))
        group, version, rest = target.group, target.version, target.rest
        if group in accessreviews.GROUPS:
            body = await read_request_body(request)
            review = accessreviews.answer_review(group, version, rest[0], body, user, request.method, self._authorizer)
            return _json_response(201, encode(review))
        kind = self._registry.find(group, version, rest[0])
        if kind is None or len(rest) > 3 or (target.namespace and not kind.namespaced):
            raise apierrors.no_such_path()
        call = Call(
            target.verb,
            kind,
            target.namespace,
            target.name,
            rest[2] if len(rest) > 2 else "",
            request.query,
            user,
            tracked=tracked,
            warnings=warnings,
        )
        if call.verb in ("get", "list", "watch"):
            return await self._read(call, request)
        if not call.verb:
            raise apierrors.method_not_allowed()
        read_options(call, agent)
        return await self._write(call, request)

    async def _read(self, call: Call, request: Request) -> Response | StreamingResponse:
        form = response_format(request.accept)
        if call.verb == "watch":
            return StreamingResponse(self._reader.watch(call, form))
        if call.verb == "list":
            body, revision = self._reader.list_page(call, form)
            await self._storage.wait_durable(revision)
            return Response(200, body, _JSON)
        if call.subresource == "scale" and call.kind.scale is not None:
            return Response(200, encode(read_scale(call, self._reader.record(call).object())), _JSON)
        if call.subresource and not (call.subresource == "status" and call.kind.status):
            raise self._subresource_not_found(call)
        record = self._reader.record(call)
        await self._storage.wait_durable(record.revision)
        return Response(200, self._reader.encode_object(call, form, record), _JSON)

    def _subresource_not_found(self, call: Call) -> errors.ApiError:
        if call.kind.store == ("", "pods") and call.subresource in ("log", "exec", "attach", "portforward"):
            self._reader.record(call)
            what = "`kubectl logs`" if call.subresource == "log" else f"`{call.subresource}`"
            return errors.ServerError(501, "NotImplemented", _NO_CONTAINER.format(what=what))
        if call.kind.is_custom and call.name:
            return apierrors.not_found(call.kind.group, call.kind.plural, call.name)
        return apierrors.no_such_path()

    async def _write(self, call: Call, request: Request) -> Response:
        form = response_format(request.accept)
        kind, writer = call.kind, self._writer
        if kind.namespaced and not call.namespace:
            raise apierrors.method_not_allowed()
        if call.verb == "deletecollection":
            return await self._delete_collection(call, request, form)
        if call.subresource and call.subresource not in ("status", "finalize"):
            return await self._write_subresource(call, request, form)
        if call.subresource == "status" and not kind.status:
            raise apierrors.no_such_path()
        if call.verb == "create":
            if call.name:
                raise apierrors.method_not_allowed()
            record = await writer.create(call, await read_request_body(request))
            return await self._object_response(call, form, record, 201)
        if call.verb == "update":
            body = await read_request_body(request)
            record = await writer.update(call, lambda _: body, unconditional=not kind.is_custom)
            return await self._object_response(call, form, record)
        if call.verb == "patch":
            return await self._patch(call, request, form)
        options = deletion.read_options(call.query, await read_request_body(request))
        deleted = await writer.delete(call, options)
        if deleted.is_removed:
            await self._storage.wait_durable(deleted.record.revision)
            return _json_response(200, encode(_success_status(call, deleted.record)))
        return await self._object_response(call, form, deleted.record)

    async def _patch(self, call: Call, request: Request, form: ResponseFormat) -> Response:
        patch = await read_request_body(request)
        media = request.content_type.partition(";")[0].strip()
        change = patch_function(call, media, patch, self._state.now)
        if call.verb == "apply" and self._storage.get(call.kind.store, call.key) is None:
            if call.subresource:
                raise apierrors.not_found(call.kind.group, call.kind.plural, call.name)
            self._check_create_right(call)
            created = await self._writer.create(call, change(None))
            return await self._object_response(call, form, created, 201)
        record = await self._writer.update(call, change)
        return await self._object_response(call, form, record)

    def _check_create_right(self, call: Call) -> None:
        """403 if an apply would create an object that its user may only change."""
        kind, where = call.kind, {"namespace": call.namespace, "name": call.name}
        if not self._authorizer.allowed(call.user, "create", kind.group, kind.plural, **where):
            raise rbac.forbidden_resource(call.user, "create", kind.group, kind.plural, **where)

    async def _write_subresource(self, call: Call, request: Request, form: ResponseFormat) -> Response:
        kind, writer = call.kind, self._writer
        pod = kind.store == ("", "pods")
        if call.subresource == "scale" and kind.scale is not None and call.verb in ("update", "patch"):
            body = await read_request_body(request)
            change = scale_change(call, body, request.content_type)
            call.subresource = ""
            call.verb = "patch"
            record = await writer.update(call, change)
            await self._storage.wait_durable(record.revision)
            return _json_response(200, encode(read_scale(call, record.object())))
        if pod and call.subresource == "binding" and call.verb == "create":
            body = await read_request_body(request)
            writer.admission.check_subresource(call)
            record = pods.bind(self._state, call, body if isinstance(body, dict) else {})
            await self._storage.wait_durable(record.revision)
            return _json_response(201, _SUCCESS_CREATED)
        if pod and call.subresource == "eviction" and call.verb == "create":
            body = await read_request_body(request)
            record = self._reader.record(call)
            writer.admission.check_subresource(call)
            pods.check_eviction(self._state, record, dry_run=call.dry_run)
            options = body.get("deleteOptions") if isinstance(body, dict) else None
            deleted = writer.delete_now(call, deletion.read_options(call.query, options))
            await self._storage.wait_durable(deleted.record.revision)
            return _json_response(201, _SUCCESS_CREATED)
        if pod and call.subresource in ("resize", "ephemeralcontainers") and call.verb in ("update", "patch"):
            raise errors.ServerError(501, "NotImplemented", f"{call.subresource} of a running pod is not served here")
        raise self._subresource_not_found(call)

    async def _delete_collection(self, call: Call, request: Request, form: ResponseFormat) -> Response:
        options = deletion.read_options(call.query, await read_request_body(request))
        records = self._reader.matching_records(call)
        for record in records:
            one = Call(
                "delete",
                call.kind,
                record.namespace,
                split_key(record.key)[1],
                "",
                {},
                call.user,
                dry_run=call.dry_run,
            )
            try:
                await self._writer.delete(one, options)
            except errors.NotFound:
                # Another client deleted it first.
                continue
        revision = self._storage.revision
        await self._storage.wait_durable(revision)
        return _json_response(200, self._reader.encode_list(call, form, records, revision))

    async def _object_response(
        self, call: Call, form: ResponseFormat, record: StoredObject, code: int = 200
    ) -> Response:
        await self._storage.wait_durable(record.revision)
        return Response(code, self._reader.encode_object(call, form, record), _JSON)


def _json_response(code: int, body: bytes) -> Response:
    return Response(code, body, _JSON)


_SUCCESS_CREATED: Final = encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


def _success_status(call: Call, record: StoredObject) -> JsonObject:
    details = {"name": call.name, "kind": call.kind.plural, "uid": record.uid}
    if call.kind.group:
        details["group"] = call.kind.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
