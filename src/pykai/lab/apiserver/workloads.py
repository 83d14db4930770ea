"""Rules of jobs, deployments, replica sets and stateful sets that depend on more than one field.

A job gets a selector and labels with its uid, so that it selects only its own pods. The selectors of the others must
match their template and are immutable.
"""

from __future__ import annotations

from typing import Final

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.apierrors import StatusCause, forbidden_field, invalid_value, required_value
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.selectors import selector_matches
from pykai.lab.apiserver.serverstate import ServerState

UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
NAME_LABEL: Final = "batch.kubernetes.io/job-name"
OLD_UID_LABEL: Final = "controller-uid"
OLD_NAME_LABEL: Final = "job-name"


def prepare_job(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    """Add selector and labels with the job's uid unless manualSelector is set, and default the job's labels."""
    spec = obj.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict):
        return obj
    if spec.get("manualSelector") is True:
        return _with_template_labels(obj, template)
    meta = obj["metadata"]
    own = {
        OLD_UID_LABEL: meta["uid"],
        OLD_NAME_LABEL: meta["name"],
        UID_LABEL: meta["uid"],
        NAME_LABEL: meta["name"],
    }
    template_meta = template.get("metadata") or {}
    template = {**template, "metadata": {**template_meta, "labels": {**(template_meta.get("labels") or {}), **own}}}
    selector = {"matchLabels": {UID_LABEL: meta["uid"]}}
    spec = {"manualSelector": False, **spec, "selector": selector, "template": template}
    return _with_template_labels({**obj, "spec": spec}, template)


def _with_template_labels(job: JsonObject, template: JsonObject) -> JsonObject:
    """The job with the labels of its template, if it has none itself."""
    labels = (template.get("metadata") or {}).get("labels")
    meta = job["metadata"]
    return job if meta.get("labels") or not labels else {**job, "metadata": {**meta, "labels": dict(labels)}}


def validate_job(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """A job needs restartPolicy Never or OnFailure, and most of its spec is immutable."""
    if call.subresource == "status":
        return []
    spec = obj.get("spec") or {}
    pod = ((spec.get("template") or {}).get("spec")) or {}
    causes = []
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        causes.append(required_value("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    if before is not None:
        old = before.get("spec") or {}
        for field in ("selector", "completionMode"):
            if spec.get(field) != old.get(field):
                causes.append(invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
        indexed = spec.get("completionMode") == "Indexed"
        if spec.get("completions") != old.get("completions") and not (
            indexed and spec.get("completions") == spec.get("parallelism")
        ):
            causes.append(invalid_value("spec.completions", spec.get("completions"), "field is immutable"))
        if spec.get("template") != old.get("template") and not old.get("suspend"):
            causes.append(invalid_value("spec.template", "", "field is immutable"))
    return causes


def validate_selector(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """The selector matches the template's labels and never changes."""
    if call.subresource == "status":
        return []
    spec = obj.get("spec") or {}
    selector = spec.get("selector")
    if not isinstance(selector, dict):
        return [required_value("spec.selector")]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid_value("spec.selector", "{}", "empty selector is invalid for " + call.kind.kind.lower())]
    causes = []
    labels = (((spec.get("template") or {}).get("metadata")) or {}).get("labels") or {}
    if not selector_matches(selector, labels):
        causes.append(
            invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        )
    if before is not None and (before.get("spec") or {}).get("selector") != selector:
        causes.append(invalid_value("spec.selector", selector, "field is immutable"))
    return causes


def validate_deployment(
    state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None
) -> list[StatusCause]:
    """A selector as above; what is replaced as a whole is not rolled out."""
    causes = validate_selector(state, call, obj, before)
    strategy = (obj.get("spec") or {}).get("strategy") or {}
    if call.subresource != "status" and strategy.get("type") == "Recreate" and strategy.get("rollingUpdate"):
        text = "may not be specified when strategy `type` is 'Recreate'"
        causes.append(forbidden_field("spec.strategy.rollingUpdate", text))
    return causes
