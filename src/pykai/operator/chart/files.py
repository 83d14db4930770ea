"""The files of the chart: which documents stand in which template.

`kai install` renders the same documents without Helm, so the table has the documents, and `chart_files` the texts.

Statements: operations:10, O-51, O-62; cases operations:OC-19.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pykai
from pykai.api.crds import custom_resource_definitions
from pykai.operator.chart import configuration, hooks, monitoring, networkpolicies, objects
from pykai.operator.chart.helmtemplates import definition, included, template
from pykai.operator.chart.kubernetesversion import KUBE_VERSION
from pykai.operator.chart.language import (
    NOTHING,
    All,
    Choice,
    Failure,
    IsSet,
    TemplateNode,
    TemplateScope,
    Value,
    evaluated,
)
from pykai.operator.chart.valuefiles import WANTED, schema_text, values_text
from pykai.operator.chart.values import VALUES
from pykai.operator.hooks.table import HOOKS
from pykai.operator.manifesttext import manifest
from pykai.operator.monitoring.files import monitoring_files

CHART_NAME: Final = "kai-scheduler"
_GENERATED: Final = "{{- /* Written by tools/chart.py: change src/pykai/operator/chart instead. */ -}}\n"
_EXPRESSIONS: Final = """{{- define "kai-scheduler.tag" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $tag := $image.tag | default $root.Values.global.tag | default $root.Chart.AppVersion -}}
{{- has $root.Values.global.fipsMode (list "on" "only") | ternary (printf "%s-fips" $tag) $tag -}}
{{- end -}}
{{- define "kai-scheduler.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $registry := $image.registry | default $root.Values.global.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $image.name }}:{{ include "kai-scheduler.tag" . -}}
{{- end -}}
{{- define "kai-scheduler.names" -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names .name }}{{ end -}}
{{- $names | toJson -}}
{{- end -}}
"""
_NOTES: Final = """PyKAI {{ .Chart.AppVersion }} is installed in {{ .Release.Namespace }}.

Watch it start:
  kubectl get config kai-config -o jsonpath='{.status.conditions[?(@.type=="Ready")]}'
  kubectl --namespace {{ .Release.Namespace }} get pods

Submit work to a queue:
  kubectl get queues
  pods need schedulerName: kai-scheduler and the label {{ .Values.podgrouper.queueLabelKey }}: QUEUE
"""


def release_documents() -> dict[str, list[TemplateNode]]:
    """File -> the documents of a release that are no hooks."""
    return {
        "operator.yaml": objects.operator_objects(),
        "roles.yaml": objects.roles(),
        "kept.yaml": objects.kept_objects(),
        "priority-classes.yaml": objects.priority_classes(),
        "admission-policies.yaml": objects.policies(),
        "default-shard.yaml": [configuration.default_shard()],
        "monitoring.yaml": [*monitoring.prometheus_role(), *monitoring.monitoring_documents()],
        "network-policies.yaml": networkpolicies.network_policies(),
    }


def hook_files() -> dict[str, list[TemplateNode]]:
    """File -> the documents of hooks."""
    return {
        "hooks/openshift.yaml": hooks.openshift_documents(),
        **{f"hooks/{hook.name}.yaml": hooks.hook_documents(hook) for hook in HOOKS},
    }


def checks() -> list[TemplateNode]:
    """Values that exclude each other."""
    both = All((IsSet(Value("kaiConfig.render")), IsSet(Value("kaiConfigDeployer.enabled"))))
    text = (
        "kaiConfig.render and kaiConfigDeployer.enabled are mutually exclusive: "
        "set kaiConfigDeployer.enabled=false to make the Config a part of the release"
    )
    return [Choice(both, Failure(text))]


def rendered_documents(scope: TemplateScope, documents: Iterable[TemplateNode]) -> list[dict[str, Any]]:
    """The objects of documents for some values."""
    found: list[dict[str, Any]] = []
    for each in documents:
        made = evaluated(each, scope)
        if isinstance(made, list):
            found += made
        elif made is not NOTHING:
            found.append(made)
    return found


def chart_files() -> dict[str, str]:
    """Path in the chart -> text."""
    config = configuration.CONFIG_DEFINITION
    templates = {
        "_definitions.tpl": _EXPRESSIONS + definition(config, configuration.config()),
        "checks.yaml": template(checks()) + _root_checks(),
        "config.yaml": f"{{{{- if .Values.kaiConfig.render }}}}\n{included(config)}{{{{- end }}}}\n",
        **{name: template(documents) for name, documents in (release_documents() | hook_files()).items()},
    }
    return {
        "Chart.yaml": _chart_file(),
        "values.yaml": values_text(),
        "values.schema.json": schema_text(),
        **{f"crds/{each['metadata']['name']}.yaml": f"---\n{manifest(each)}" for each in custom_resource_definitions()},
        **{f"templates/{name}": _GENERATED + text for name, text in templates.items()},
        "templates/NOTES.txt": _NOTES,
        **monitoring_files(),
    }


def _chart_file() -> str:
    lines = {
        "apiVersion": "v2",
        "name": CHART_NAME,
        "description": "PyKAI: KAI Scheduler in Python, for GPU and AI workloads",
        "type": "application",
        "kubeVersion": KUBE_VERSION,
        "version": pykai.__version__,
        "appVersion": pykai.__version__,
        "keywords": ["scheduler", "gpu", "ai", "batch"],
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())


# install:subchart
def _root_checks() -> str:
    """Refuses what the schema lets pass for the sake of a chart around this one."""
    known = sorted({each.path.split(".")[1] for each in VALUES if each.path.startswith("global.")})
    listed = " ".join(map(json.dumps, known))
    return f"""{{{{- if .Chart.IsRoot }}}}
{{{{- range $key, $_ := .Values.global }}}}
{{{{- if not (has $key (list {listed})) }}}}
{{{{- fail (printf "global.%s: the chart has no such value" $key) }}}}
{{{{- end }}}}
{{{{- end }}}}
{{{{- if hasKey .Values "{WANTED}" }}}}
{{{{- fail "{WANTED}: the chart has no such value" }}}}
{{{{- end }}}}
{{{{- end }}}}
"""
