"""The hooks of the chart: Jobs that run before or after an installation, upgrade or deletion.

Each row of the table of hooks becomes a Job that runs `kai hook NAME`, with an account and roles of its own that go
when the Job has succeeded.

Statements: operations:O-51, O-52, OD-14; cases operations:OC-19.
"""

from __future__ import annotations

from typing import Final

from pykai.api import names
from pykai.operator.chart.configuration import CONFIG_DEFINITION, IS_OPENSHIFT, config, pull_policy
from pykai.operator.chart.language import (
    All,
    Any_,
    Choice,
    Embedded,
    Has,
    ImageReference,
    IsSet,
    Not,
    Pick,
    ReleaseNamespace,
    TemplateCondition,
    TemplateNode,
    Text,
    Value,
    Within,
    when_set,
)
from pykai.operator.chart.objects import container_context, in_namespaces, pod_placement
from pykai.operator.desired.numaexporter import NAME as NUMA_EXPORTER
from pykai.operator.hooks.table import CONFIG_DEPLOYER, HOOKS, POST, POST_CLEANUP, POST_DELETE, PRE, HookDefinition
from pykai.operator.install import role_and_binding
from pykai.operator.roles import by_namespace
from pykai.services.table import installed_services

_MANIFEST: Final = "kai-config-manifest"
MANIFEST_KEY: Final = "kai-config.json"
MANIFEST_FOLDER: Final = "/manifest"
_SCC: Final = "kai-system"
_EXPORTER_SCC: Final = "kai-numa-placement-exporter"
_SCC_GROUP: Final = "security.openshift.io"


def hook_documents(hook: HookDefinition) -> list[TemplateNode]:
    """Account, roles and Job of a hook."""
    documents = [*_account(hook), *_roles(hook)]
    if hook is CONFIG_DEPLOYER:
        documents.append(_config_manifest())
    documents.append(_job(hook))
    if not hook.switch:
        return documents
    return [Choice(IsSet(Value(hook.switch)), documents)]


def marks(moment: str, weight: int, *, ends: bool = True) -> dict[str, str]:
    """How Helm and Argo CD run a hook (operations:O-52); `ends`: it is deleted once all of the moment succeeded."""
    policy = "before-hook-creation,hook-succeeded" if ends else "before-hook-creation"
    found = {"helm.sh/hook": moment, "helm.sh/hook-weight": str(weight), "helm.sh/hook-delete-policy": policy}
    if moment == POST_DELETE:
        found["argocd.argoproj.io/hook"] = "PostDelete"
        found["argocd.argoproj.io/hook-delete-policy"] = "BeforeHookCreation,HookSucceeded"
    return found


def _account_name(hook: HookDefinition) -> TemplateNode:
    # operations:OD-14: the account is called as the Job says.
    return Value("postCleanup.serviceAccountName") if hook is POST_CLEANUP else hook.account


def _account(hook: HookDefinition) -> list[TemplateNode]:
    name = _account_name(hook)
    metadata = {"name": name, "namespace": ReleaseNamespace(), "annotations": marks(hook.moment, -1)}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata,
            "imagePullSecrets": when_set("global.imagePullSecrets"),
        }
    ]


def _roles(hook: HookDefinition) -> list[TemplateNode]:
    documents = []
    for namespace, rules in by_namespace(hook.rules).items():
        for each in role_and_binding(hook.account, namespace, rules, (hook.account, names.DEFAULT_NAMESPACE)):
            document = in_namespaces(each)
            document["metadata"]["annotations"] = marks(hook.moment, -1)
            if "subjects" in document:
                document["subjects"][0]["name"] = _account_name(hook)
            documents.append(document)
    return documents


def _config_manifest() -> TemplateNode:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _MANIFEST, "namespace": ReleaseNamespace(), "annotations": marks(POST, 0)},
        "data": {MANIFEST_KEY: Embedded(CONFIG_DEFINITION, config())},
    }


def _job(hook: HookDefinition) -> TemplateNode:
    metadata = {
        "name": hook.name,
        "namespace": ReleaseNamespace(),
        "annotations": marks(hook.moment, hook.weight),
    }
    pod: dict[str, TemplateNode] = {
        "serviceAccountName": _account_name(hook),
        "restartPolicy": "OnFailure",
        **pod_placement(),
        "securityContext": Choice(
            IS_OPENSHIFT,
            {"runAsUser": 10000, "runAsNonRoot": True, "fsGroup": 10000},
            when_set("global.podSecurityContext"),
        ),
        "containers": [_container(hook)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
    if hook is CONFIG_DEPLOYER:
        pod["volumes"].append({"name": "manifest", "configMap": {"name": _MANIFEST}})
    labels = {"app": hook.name, "app.kubernetes.io/name": hook.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": Choice(IS_OPENSHIFT, {"openshift.io/scc": _SCC}),
                },
                "spec": pod,
            }
        },
    }


def _container(hook: HookDefinition) -> dict[str, TemplateNode]:
    image = f"{hook.value}.image"
    resources = f"{hook.value}.resources"
    found: dict[str, TemplateNode] = {
        "name": hook.name,
        "image": ImageReference(image),
        "imagePullPolicy": pull_policy(image),
        "command": ["kai", "hook", hook.name],
        "args": _arguments(hook),
        "resources": when_set(resources),
        "securityContext": container_context(),
        # The root is read-only.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if hook is CONFIG_DEPLOYER:
        found["volumeMounts"].append({"name": "manifest", "mountPath": MANIFEST_FOLDER})
    return found


def _arguments(hook: HookDefinition) -> TemplateNode:
    if hook is CONFIG_DEPLOYER:
        return [f"--file={MANIFEST_FOLDER}/{MANIFEST_KEY}"]
    if hook is POST_CLEANUP:
        # A Config that the chart has not made is not its to delete (operations:O-62).
        deletes = Pick(IsSet(Value("kaiConfigDeployer.enabled")), "true", "false")
        return [
            Text("--namespace={}", (ReleaseNamespace(),)),
            Text("--delete-config={}", (deletes,)),
        ]
    return []


def openshift_documents(*, are_hooks: bool = True) -> list[TemplateNode]:
    """What OpenShift lets all pods of ours do, those of hooks included (operations:OD-14); before them, if they are."""
    namespace = ReleaseNamespace()
    accounts: list[tuple[TemplateNode, TemplateNode]] = [(each.account, namespace) for each in installed_services()]
    accounts += [(_account_name(hook), namespace) for hook in HOOKS]
    reservation = "global.resourceReservation"
    accounts.append((Value(f"{reservation}.serviceAccount"), Value(f"{reservation}.namespace")))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{_SCC}-scc"}
    documents: list[dict[str, TemplateNode]] = [
        constraints(_SCC, [_user(where, name) for name, where in accounts]),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{_SCC}-scc"},
            "rules": [
                {
                    "apiGroups": [_SCC_GROUP],
                    "resources": ["securitycontextconstraints"],
                    "resourceNames": [_SCC],
                    "verbs": ["use"],
                }
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{_SCC}-scc"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": where} for name, where in accounts],
        },
    ]
    exporter = _exporter_documents()
    if are_hooks:
        for each in (*documents, *exporter):
            each["metadata"]["annotations"] = marks(PRE, -1, ends=False)
    return [Choice(IS_OPENSHIFT, documents), Choice(All((IS_OPENSHIFT, _EXPORTS_NUMA)), exporter)]


#: another shard than the default one may use NUMA, too: then the switch has to be on
_EXPORTS_NUMA: Final[TemplateCondition] = Any_(
    (
        IsSet(Value("numaPlacementExporter.enabled")),
        All((Not(Has("numaPlacementExporter.enabled")), IsSet(Within("scheduler.plugins", ("numa", "enabled"))))),
    )
)


def _exporter_documents() -> list[dict[str, TemplateNode]]:
    """What OpenShift lets the exporter of NUMA placements do: read a socket and a folder of its node as root."""
    return [
        {
            **constraints(_EXPORTER_SCC, [_user(ReleaseNamespace(), NUMA_EXPORTER)]),
            "allowHostDirVolumePlugin": True,
            "readOnlyRootFilesystem": True,
            "runAsUser": {"type": "MustRunAs", "uid": 0},
            # The type under which device plugins talk to the kubelet; the usual one may not.
            "seLinuxContext": {"type": "MustRunAs", "seLinuxOptions": {"type": "container_device_plugin_t"}},
            "volumes": ["emptyDir", "hostPath", "projected"],
        }
    ]


def _user(namespace: TemplateNode, account: TemplateNode) -> Text:
    return Text("system:serviceaccount:{}:{}", (namespace, account))


def constraints(name: str, users: list[TemplateNode]) -> dict[str, TemplateNode]:
    """OpenShift's leave for these users' pods to run as the image does."""
    return {
        "apiVersion": f"{_SCC_GROUP}/v1",
        "kind": "SecurityContextConstraints",
        "metadata": {"name": name},
        "priority": 1,
        "allowHostDirVolumePlugin": False,
        "allowHostIPC": False,
        "allowHostNetwork": False,
        "allowHostPID": False,
        "allowHostPorts": False,
        "allowPrivilegeEscalation": False,
        "allowPrivilegedContainer": False,
        "allowedCapabilities": None,
        "defaultAddCapabilities": None,
        "requiredDropCapabilities": ["ALL"],
        "readOnlyRootFilesystem": False,
        "runAsUser": {"type": "MustRunAs", "uid": 10000},
        "fsGroup": {"type": "RunAsAny"},
        "supplementalGroups": {"type": "RunAsAny"},
        "seLinuxContext": {"type": "MustRunAs"},
        "seccompProfiles": ["runtime/default"],
        "volumes": ["configMap", "emptyDir", "projected", "secret"],
        "users": users,
        "groups": [],
    }
