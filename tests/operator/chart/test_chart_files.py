"""The files of the chart, and that those in the repository are up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykai.operator.chart.files import chart_files
from pykai.operator.chart.helmtemplates import template
from pykai.operator.chart.kubernetesversion import version_problem
from pykai.operator.chart.kustomization import kustomize_files
from pykai.operator.chart.language import Choice, IsSet, Text, Value
from pykai.operator.chart.values import UNSET, VALUES, default_values, merged_values
from pykai.operator.installing.release import Release, release_objects
from tools.chart import stale, write


def test_the_chart_in_the_repository_is_what_the_tables_say() -> None:
    assert stale() == [], "run tools/chart.py and commit what it writes"


def test_stale_missing_and_surplus_files_are_found_and_put_right(tmp_path: Path) -> None:
    write(tmp_path)
    assert stale(tmp_path) == []
    chart = tmp_path / "charts" / "kai-scheduler"
    (chart / "values.yaml").write_text("openshift: true\n")
    (chart / "Chart.yaml").unlink()
    (chart / "templates" / "mine.yaml").write_text("")
    found = [f"charts/kai-scheduler/{name}" for name in ("Chart.yaml", "templates/mine.yaml", "values.yaml")]
    assert stale(tmp_path) == found
    assert write(tmp_path) == found
    assert stale(tmp_path) == []


def test_deleting_a_base_takes_no_queues_and_definitions_along() -> None:
    bases = {
        name: list(yaml.safe_load_all(text))
        for name, text in kustomize_files().items()
        if not name.endswith("kustomization.yaml")
    }
    kinds = {name: {each["kind"] for each in objects} for name, objects in bases.items()}
    assert kinds["crds/objects.yaml"] == {"CustomResourceDefinition"}
    assert kinds["kept/objects.yaml"] == {"Namespace", "ServiceAccount", "Queue", "SchedulingShard"}
    assert {"Deployment", "Config"} <= kinds["base/objects.yaml"]
    assert not {"CustomResourceDefinition", "Namespace", "Queue"} & kinds["base/objects.yaml"]
    everything = [each for objects in bases.values() for each in objects]
    assert len(everything) == len(release_objects(Release())) + len(bases["crds/objects.yaml"])


@pytest.mark.parametrize(
    ("found", "works"),
    [
        ("v1.30.0", True),
        ("v1.33.1-eks-1de2ab1", True),
        ("v1.30.5-gke.1014001", True),
        ("v1.31.4+k3s1", True),
        ("v2.0.0", True),
        ("v1.29.14", False),
        ("v1.29.10-eks-7f9249a", False),
        ("of our own", True),
    ],
)
def test_the_range_of_versions_of_kubernetes(found: str, works: bool) -> None:
    """install:kubernetes: Helm reads the range as semantic versions, so a suffix is one before the release."""
    assert yaml.safe_load(chart_files()["Chart.yaml"])["kubeVersion"] == ">=1.30.0-0"
    said = version_problem({"gitVersion": found})
    assert said == (
        ""
        if works
        else f"this cluster runs Kubernetes {found}; PyKAI needs 1.30 or newer, so upgrade the cluster first"
    )


def test_values_yaml_has_the_defaults_of_the_table_and_a_word_on_each() -> None:
    """operations:OD-18."""
    text = chart_files()["values.yaml"]
    assert yaml.safe_load(text) == default_values()
    for each in VALUES:
        key = each.path.rpartition(".")[2]
        assert f"# {each.meaning}" in text
        assert f"{'# ' if each.default is UNSET else ''}{key}:" in text


def test_the_schema_allows_the_defaults_and_nothing_unknown() -> None:
    schema = json.loads(chart_files()["values.schema.json"])
    assert list(_problems(default_values(), schema)) == []
    wrong: dict[str, Any] = {
        "global": {"registri": "a", "tag": 3, "fipsMode": "maybe"},
        "binder": {"ports": {"metricsPort": 70000}},
    }
    assert sorted(_problems(wrong, schema)) == [
        "binder.ports.metricsPort",
        "global.fipsMode",
        "global.tag",
    ]
    assert list(_problems({"bindr": {}, "enabled": "yes"}, schema)) == ["bindr", "enabled"]


def test_globals_of_a_chart_around_this_one_pass() -> None:
    """install:subchart: alone, a template refuses them."""
    schema = json.loads(chart_files()["values.schema.json"])
    values = {"global": {"imageRegistry": "a", "registry": "b"}, "enabled": True}
    assert list(_problems(values, schema)) == []
    text = chart_files()["templates/checks.yaml"]
    (known,) = re.findall(r"has \$key \(list ([^)]*)\)", text)
    assert set(known.replace('"', "").split()) == default_values()["global"].keys() | {
        each.path.split(".")[1] for each in VALUES if each.path.startswith("global.") and each.default is UNSET
    }


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
}


def _problems(value: Any, schema: dict[str, Any], path: str = "") -> Any:
    """What of JSON Schema the chart uses; Helm itself is asked in the Helm tier."""
    is_of_type = isinstance(value, _TYPES.get(str(schema.get("type")), object))
    bounds = range(schema.get("minimum", 0), schema.get("maximum", 0) + 1)
    if not is_of_type or value not in schema.get("enum", [value]) or ("maximum" in schema and value not in bounds):
        yield path
    elif isinstance(value, dict):
        for key, below in value.items():
            where = f"{path}.{key}" if path else key
            found = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
            if found is False:
                yield where
            elif isinstance(found, dict):
                yield from _problems(below, found, where)


def test_values_are_merged_as_helm_does() -> None:
    merged = merged_values({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": [2]}, {"a": {"c": None}})
    assert merged == {"a": {"b": 3}, "d": [2]}
    assert merged_values({}, {"a": {"c": None}}, keeps_nulls=True) == {"a": {"c": None}}


def test_a_part_that_could_be_empty_is_not_written() -> None:
    """YAML would read nothing, where an empty map is meant."""
    with pytest.raises(ValueError, match="may be empty"):
        template([{"kind": "Job", "spec": {"a": Choice(IsSet(Value("a")), 1)}}])
    with pytest.raises(ValueError, match="begins with a choice"):
        template([{"kind": "Job", "list": [{"a": Choice(IsSet(Value("a")), 1), "b": 2}]}])


def test_texts_are_written_so_that_yaml_and_helm_read_them_back() -> None:
    written = template([{"plain": "kai/a-b", "word": "yes", "number": "1", "braces": "{{ a }}", "text": "a: b"}])
    assert written == (
        '---\nplain: kai/a-b\nword: "yes"\nnumber: "1"\nbraces: {{ "{{ a }}" | toJson }}\ntext: "a: b"\n'
    )
    printed = template([{"text": Text("100% {} of {{}}", (Value("a"),))}])
    assert printed == '---\ntext: {{ printf "100%% %v of {}" .Values.a | toJson }}\n'
