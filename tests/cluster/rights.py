"""What the services did with their rights: the audit log of an API server against the table of roles.

`forbidden` gives the requests of our accounts that no role allows.  `unused` gives what the table allows and no request
has used.  Both read audit documents, one per request, and nothing else.

Subtle: a 403 may also come from admission or from a quota, which is not about roles; the decision of authorization
is an annotation of the document.  And a kube-apiserver that was restarted answers before it has read its roles: for a
moment it refuses what it allows otherwise.  Roles do not change during a run, so what was allowed at another time is no
fault of theirs.  Discovery (`/apis`, `/version`) is open to every user and has no object to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pykai.api import names
from pykai.services.rights import RoleRule

Document = Mapping[str, Any]
Table = Mapping[str, tuple[RoleRule, ...]]

#: of kinds that the pod grouper is meant not to know: it asks, is refused, and groups the pods without (kinds:unknown)
REFUSED_GROUP = "unknown.example.com"

_DECISION = "authorization.k8s.io/decision"
_ACCOUNTS = f"system:serviceaccount:{names.DEFAULT_NAMESPACE}:"


class Right(NamedTuple):
    """One verb on one resource, for one service."""

    service: str
    group: str
    #: `pods`, `pods/status`
    resource: str
    verb: str
    #: empty: everywhere
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.service}: {self.verb} {kind}{where}"


def forbidden(requests: Iterable[Document], services: Iterable[str]) -> list[str]:
    """Requests of these services that authorization has refused, now and always; each once, with how often."""
    ours = set(services)
    counts: Counter[tuple[str, Right | None]] = Counter()
    granted: set[Right | None] = set()
    for request in requests:
        service = _service(request)
        if service not in ours:
            continue
        decided = (request.get("annotations") or {}).get(_DECISION)
        if decided == "forbid" and not _is_meant(request):
            counts[f"{service}: {request.get('verb')} {request.get('requestURI')}", _right(request)] += 1
        elif decided == "allow" and (right := _right(request)) is not None:
            granted.add(right)
    refused = sorted((asked, count) for (asked, right), count in counts.items() if right not in granted)
    return [f"{asked} ({count} times)" if count > 1 else asked for asked, count in refused]


def _is_meant(request: Document) -> bool:
    """Whether a refusal is part of what a test shows."""
    right = _right(request)
    return right is not None and (right.group, right.verb) == (REFUSED_GROUP, "get")


def unused(requests: Iterable[Document], table: Table) -> list[str]:
    """What the table allows and no request has needed."""
    left = set(allowed(table))
    for request in requests:
        if not left:
            break
        for right in _used(request):
            left.discard(right)
            left.discard(right._replace(namespace=""))
    return [str(right) for right in sorted(left)]


def rights_problems(requests: Iterable[Document], table: Table, *, is_complete_run: bool) -> list[str]:
    """What is wrong with the rights of our services, after a run; only a `whole` one can find unused rights."""
    ours = [request for request in requests if _service(request) in table]
    problems = [f"forbidden, add a rule or mend the service: {each}" for each in forbidden(ours, table)]
    if is_complete_run:
        problems += [f"never used, remove the rule or test its use: {each}" for each in unused(ours, table)]
    return problems


def allowed(table: Table) -> Iterator[Right]:
    """The table, right by right."""
    for service, rules in table.items():
        for rule in rules:
            for resource in rule.resources:
                for verb in rule.verbs:
                    yield Right(service, rule.group, resource, verb, rule.namespace)


def _service(request: Document) -> str:
    user = str((request.get("user") or {}).get("username") or "")
    return user.removeprefix(_ACCOUNTS) if user.startswith(_ACCOUNTS) else ""


def _used(request: Document) -> Iterator[Right]:
    """The rights that a request took: an apply that creates needs both."""
    right = _right(request)
    if right is None:
        return
    yield right
    if right.verb == "patch" and (request.get("responseStatus") or {}).get("code") == 201:
        yield right._replace(verb="create")


def _right(request: Document) -> Right | None:
    service, what = _service(request), request.get("objectRef")
    if not service or not isinstance(what, Mapping):
        return None
    resource = str(what.get("resource") or "")
    if what.get("subresource"):
        resource = f"{resource}/{what['subresource']}"
    namespace = str(what.get("namespace") or "")
    return Right(service, str(what.get("apiGroup") or ""), resource, str(request.get("verb")), namespace)
