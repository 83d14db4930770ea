"""Makes the table of Kubernetes' built-in types, src/pykai/lab/apiserver/schema/builtin.json, from its Go modules.

    python tools/schemas/make.py

Needs Go and its module proxy; nothing else of the project does.  `types.go` prints the declarations of the packages
below; this script reads tags and markers (`json`, `protobuf`, `patchStrategy`, `+listType`, `+default`, `+enum`,
`+optional`), adds `rules.toml` (what only Kubernetes' functions know), keeps what the kinds below reach, and writes one
sorted line a definition, so that equal versions give equal bytes and a new version gives a readable diff.

The format of a definition: `fields` by JSON name with
    t  the type: string, boolean, int32, int64, double, bytes, quantity, intorstring, time, microtime, duration, any,
       `[]T` a list, `{}T` a map, `#name` another definition, `<>T` a message around a list (protobuf only)
    n  the protobuf field number     z  a zero on the protobuf wire means absent     r  required by the API's document
    l  list type (atomic is the default)   k  keys of a list of type map    a  replaced as a whole by server-side apply
    p, pk  strategy and key of a strategic merge patch    d  default    e  allowed values
    w  defaults of the struct behind this field that hold here only
and `inline` (protobuf number and definition whose fields stand among these), `atomic`, `essential`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
TABLE: Final = HERE.parent.parent / "src/pykai/lab/apiserver/schema/builtin.json"
VERSION: Final = "v0.35.4"

#: Module, folder in it, short name of the package in the table.
PACKAGES: Final = [
    *[
        ("k8s.io/api", f"{group}/{version}", f"{group}.{version}")
        for group, version in [
            ("core", "v1"),
            ("apps", "v1"),
            ("batch", "v1"),
            ("coordination", "v1"),
            ("node", "v1"),
            ("scheduling", "v1"),
            ("resource", "v1"),
            ("storage", "v1"),
            ("policy", "v1"),
            ("admissionregistration", "v1"),
            ("authorization", "v1"),
            ("authentication", "v1"),
            ("autoscaling", "v1"),
            ("events", "v1"),
            ("rbac", "v1"),
            ("discovery", "v1"),
            ("networking", "v1"),
        ]
    ],
    ("k8s.io/apimachinery", "pkg/apis/meta/v1", "meta.v1"),
    ("k8s.io/apimachinery", "pkg/types", "types"),
    ("k8s.io/apiextensions-apiserver", "pkg/apis/apiextensions/v1", "apiextensions.v1"),
]

#: Group as it stands in apiVersion, package, kinds.
KINDS: Final = {
    (
        "",
        "core.v1",
    ): "Pod Node Namespace ConfigMap Secret Service ServiceAccount PersistentVolume PersistentVolumeClaim Event "
    "Binding PodTemplate ResourceQuota LimitRange Endpoints",
    ("discovery.k8s.io", "discovery.v1"): "EndpointSlice",
    ("networking.k8s.io", "networking.v1"): "NetworkPolicy",
    ("apps", "apps.v1"): "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    ("batch", "batch.v1"): "Job CronJob",
    ("coordination.k8s.io", "coordination.v1"): "Lease",
    ("node.k8s.io", "node.v1"): "RuntimeClass",
    ("scheduling.k8s.io", "scheduling.v1"): "PriorityClass",
    ("resource.k8s.io", "resource.v1"): "ResourceClaim ResourceClaimTemplate ResourceSlice DeviceClass",
    ("storage.k8s.io", "storage.v1"): "StorageClass CSINode CSIDriver CSIStorageCapacity VolumeAttachment",
    ("policy", "policy.v1"): "PodDisruptionBudget Eviction",
    ("admissionregistration.k8s.io", "admissionregistration.v1"): "MutatingWebhookConfiguration "
    "ValidatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    ("authorization.k8s.io", "authorization.v1"): "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview "
    "LocalSubjectAccessReview",
    ("authentication.k8s.io", "authentication.v1"): "SelfSubjectReview TokenReview TokenRequest",
    ("autoscaling", "autoscaling.v1"): "Scale",
    ("events.k8s.io", "events.v1"): "Event",
    ("rbac.authorization.k8s.io", "rbac.v1"): "Role RoleBinding ClusterRole ClusterRoleBinding",
    ("apiextensions.k8s.io", "apiextensions.v1"): "CustomResourceDefinition",
    ("meta.k8s.io", "meta.v1"): "DeleteOptions Status CreateOptions UpdateOptions PatchOptions PartialObjectMetadata",
}

META: Final = "k8s.io/apimachinery/pkg/apis/meta/v1."
API_EXTENSIONS: Final = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1."
SCALARS: Final = {
    "string": "string",
    "bool": "boolean",
    "int": "int32",
    "int32": "int32",
    "int64": "int64",
    "uint8": "int32",
    "float64": "double",
    "[]byte": "bytes",
    "any": "any",
    META + "Time": "time",
    META + "MicroTime": "microtime",
    META + "Duration": "duration",
    META + "FieldsV1": "any",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "intorstring",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "any",
    "k8s.io/apimachinery/pkg/runtime.Object": "any",
    API_EXTENSIONS + "JSON": "any",
}
#: Types whose JSON is not what their Go fields say.
CUSTOM: Final = {
    API_EXTENSIONS + "JSONSchemaPropsOrArray": "schema-or-array",
    API_EXTENSIONS + "JSONSchemaPropsOrBool": "schema-or-boolean",
    API_EXTENSIONS + "JSONSchemaPropsOrStringArray": "schema-or-strings",
}


class Declarations:
    """The Go declarations, and the table made from what was asked of them."""

    def __init__(self, printed: dict[str, Any], rules: dict[str, Any]) -> None:
        self.types: dict[str, Any] = printed["types"]
        self.constants: dict[str, dict[str, str]] = printed["constants"]
        self.rules = rules
        self.short = {f"{module}/{folder}": short for module, folder, short in PACKAGES}
        self.table: dict[str, dict[str, Any]] = {}

    def name(self, go_type: str) -> str:
        package, _, name = go_type.rpartition(".")
        return f"{self.short[package]}.{name}"

    def define(self, go_type: str) -> str:
        """Put a struct and all it reaches into the table."""
        name = self.name(go_type)
        if name in self.table:
            return name
        declared = self.types[go_type]
        definition = self.table[name] = {"fields": {}}
        if "+structType=atomic" in declared["markers"]:
            definition["atomic"] = True
        for field in declared["fields"]:
            self._add_field(definition, field)
        for field, default in self.rules["defaults"].get(name, {}).items():
            if field not in definition["fields"]:
                raise SystemExit(f"rules.toml: {name} has no field {field}")
            definition["fields"][field]["d"] = default
        for field, defaults in self.rules["within"].get(name, {}).items():
            definition["fields"][field]["w"] = defaults
        if name in self.rules["essential"]:
            definition["essential"] = self.rules["essential"][name]
        return name

    def _add_field(self, definition: dict[str, Any], field: dict[str, Any]) -> None:
        tags = dict(re.findall(r'(\w+):"([^"]*)"', field["tag"]))
        if tags.get("json") in (None, "-"):
            return
        json_name, *options = tags["json"].split(",")
        number = int(tags["protobuf"].split(",")[1]) if "protobuf" in tags else 0
        pointer = field["type"].startswith("*")
        go_type = field["type"].removeprefix("*")
        if "inline" in options or not json_name:
            inner = self.define(go_type)
            definition.setdefault("inline", []).append([number, inner])
            return
        markers = dict(marker[1:].partition("=")[::2] for marker in field["markers"] if "listMapKey" not in marker)
        written, enum = self.table_type(go_type)
        entry: dict[str, Any] = {"t": written}
        if number:
            entry["n"] = number
        omitted = "omitempty" in options or "omitzero" in options
        if omitted and not pointer and written[0] not in "[{#<":
            entry["z"] = 1
        # A struct that stands by value is on the protobuf wire even when it is empty.
        if written[0] == "#" and not pointer:
            entry["z"] = 1
        if not omitted and "optional" not in markers:
            entry["r"] = 1
        if written.startswith("[]"):
            keys = [marker.partition("=")[2] for marker in field["markers"] if marker.startswith("+listMapKey=")]
            list_type = markers.get("listType")
            if list_type is None and "merge" in tags.get("patchStrategy", ""):
                # Lists older than the marker: server-side apply takes the rule of the strategic merge patch.
                keys = [tags["patchMergeKey"]] if "patchMergeKey" in tags else []
                list_type = "map" if keys else "set"
            if list_type not in (None, "atomic"):
                entry["l"] = list_type
            if keys and list_type == "map":
                entry["k"] = keys
        if markers.get("structType") == "atomic" or markers.get("mapType") == "atomic":
            entry["a"] = 1
        if "patchStrategy" in tags:
            entry["p"] = tags["patchStrategy"]
        if "patchMergeKey" in tags:
            entry["pk"] = tags["patchMergeKey"]
        default = self.default(markers.get("default"), go_type)
        if default is not None and (pointer or default not in ("", 0, False)):
            entry["d"] = default
        if enum:
            entry["e"] = enum
        definition["fields"][json_name] = entry

    def default(self, text: str | None, go_type: str) -> Any:
        if text is None:
            return None
        constant = re.fullmatch(r"ref\(([\w./]+)\)", text)
        if constant:
            return self.constants[go_type][constant.group(1).rpartition(".")[2]]
        return json.loads(text)

    def table_type(self, go_type: str) -> tuple[str, list[str]]:
        """The type as it stands in the table, and its allowed values."""
        go_type = go_type.removeprefix("*")
        if go_type in SCALARS:
            return SCALARS[go_type], []
        if go_type in CUSTOM:
            self.define(API_EXTENSIONS + "JSONSchemaProps")
            return CUSTOM[go_type], []
        if go_type[:2] in ("[]", "{}"):
            return go_type[:2] + self.table_type(go_type[2:])[0], []
        declared = self.types[go_type]
        if declared["type"] == "struct":
            return "#" + self.define(go_type), []
        written, _ = self.table_type(declared["type"])
        if written.startswith("[]") and any("protobuf.nullable" in marker for marker in declared["markers"]):
            written = "<>" + written
        enum = sorted(self.constants.get(go_type, {}).values()) if "+enum" in declared["markers"] else []
        return written, enum


def main() -> None:
    directories = {module: _downloaded(module) for module in dict.fromkeys(module for module, _, _ in PACKAGES)}
    arguments = [f"{module}/{folder}={directories[module]}/{folder}" for module, folder, _ in PACKAGES]
    with tempfile.TemporaryDirectory() as scratch:
        printed = subprocess.run(
            ["go", "run", str(HERE / "types.go"), *arguments], cwd=scratch, check=True, capture_output=True
        )
    declarations = Declarations(json.loads(printed.stdout), tomllib.loads((HERE / "rules.toml").read_text()))
    packages = {short: f"{module}/{folder}" for module, folder, short in PACKAGES}
    kinds: dict[str, str] = {}
    for (group, short), names in KINDS.items():
        for kind in names.split():
            api_version = f"{group}/{short.rpartition('.')[2]}".removeprefix("/")
            kinds[f"{api_version}/{kind}"] = declarations.define(f"{packages[short]}.{kind}")
    unknown = {name for part in declarations.rules.values() for name in part} - set(declarations.table)
    if unknown:
        raise SystemExit(f"rules.toml names types that are not in the table: {', '.join(sorted(unknown))}")
    TABLE.write_text(_text(kinds, declarations.table))
    print(f"{TABLE}: {len(kinds)} kinds, {len(declarations.table)} definitions, {TABLE.stat().st_size} bytes")


def _downloaded(module: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        answer = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{VERSION}"], cwd=scratch, check=True, capture_output=True
        )
    return str(json.loads(answer.stdout)["Dir"])


def _text(kinds: dict[str, str], table: dict[str, dict[str, Any]]) -> str:
    def line(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    definitions = ",\n".join(f"{line(name)}:{line(table[name])}" for name in sorted(table))
    return f'{{"version":{line(VERSION)},\n"kinds":{line(kinds)},\n"definitions":{{\n{definitions}\n}}}}\n'


if __name__ == "__main__":
    main()
