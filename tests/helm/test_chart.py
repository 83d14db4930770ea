"""The chart as Helm itself reads it; `make test-helm` builds Helm and names it in KAI_HELM.

Whatever the values, Helm renders what `kai install --dry-run` prints, and the hooks that our own language gives.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import pykai
from pykai.operator.chart.values import VALUES, Kind, default_values
from pykai.operator.installing.release import Release, release_objects
from tests.operator.chart.charts import rendered
from tools.kubernetes import VERSION

pytestmark = pytest.mark.skipif("KAI_HELM" not in os.environ, reason="make test-helm builds Helm")

CHART = Path(__file__).parents[2] / "charts" / "kai-scheduler"
Document = dict[str, Any]
#: values of each kind that differ from any default
_OTHER: dict[Kind, Any] = {
    Kind.NUMBER: 0.5,
    Kind.PORT: 7777,
    Kind.COUNT: 3,
    Kind.QUANTITY: "1Gi",
    Kind.TEXTS: {"some.key/with.dots": 'a "quoted" <text> & more'},
    Kind.DOCUMENT: {"some": {"nested": ["list", 1, True]}},
    Kind.DOCUMENTS: [{"key": "a", "operator": "Exists"}],
    Kind.NAMES: [{"name": "secret"}],
}
_EVERYTHING: dict[str, Any] = {}
_SWITCHED: dict[str, Any] = {}
for _each in VALUES:
    if _each.kind is Kind.SWITCH:
        _SWITCHED[_each.path] = _each.default is not True
    elif _each.choices:
        _EVERYTHING[_each.path] = _each.choices[-1]
    elif _each.path.endswith("BindAddress"):
        _EVERYTHING[_each.path] = "127.0.0.1:7000"
    else:
        # Names must differ from each other.
        _EVERYTHING[_each.path] = _OTHER.get(_each.kind, _each.path.replace(".", "-").lower())
#: name -> values by path
MATRIX: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "all values but switches": _EVERYTHING,
    "all switches turned": {**_SWITCHED, "kaiConfig.render": True, "kaiConfigDeployer.enabled": False},
    "everything else": {**_EVERYTHING, **_SWITCHED, "kaiConfig.render": False},
    "fips": {"global.fipsMode": "on", "global.tag": "v1"},
    "two replicas": {"operator.replicaCount": 2},
    "a Config in the release": {"kaiConfig.render": True, "kaiConfigDeployer.enabled": False},
    "a Config of others": {"kaiConfigDeployer.enabled": False},
    "openshift": {"openshift": True},
    "an older runtime class": {"admission.gpuFractionRuntimeClassName": None, "admission.gpuPodRuntimeClassName": "a"},
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.environ["KAI_HELM"], *arguments], capture_output=True, text=True, check=False, cwd=CHART.parent
    )


def templates(*arguments: str, version: str = VERSION) -> subprocess.CompletedProcess[str]:
    """What `helm template` says; a Helm that was built from its module takes the cluster for an old one."""
    return helm("template", *arguments, "--kube-version", version)


def printed(tmp_path: Path, paths: dict[str, Any], namespace: str) -> list[Document]:
    """What `helm template` renders."""
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(_given(paths)))
    done = templates("kai-scheduler", str(CHART), "--namespace", namespace, "-f", str(file))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def by_key(objects: list[Document]) -> dict[tuple[str, str, str], Document]:
    keys = [(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, objects, strict=True))


@pytest.mark.parametrize(
    ("name", "namespace"), [*((each, "kai-scheduler") for each in MATRIX), ("all switches turned", "gpu-platform")]
)
def test_helm_renders_what_we_install(tmp_path: Path, name: str, namespace: str) -> None:
    """operations:10, OC-19; install:places."""
    paths = MATRIX[name]
    found = by_key(printed(tmp_path, paths, namespace))
    hooks = {key for key, each in found.items() if "helm.sh/hook" in each["metadata"].get("annotations", {})}
    ours = by_key(release_objects(Release(_given(paths), namespace))[1:])
    manifest = found.get(("ConfigMap", namespace, "kai-config-manifest"))
    if manifest is not None:
        found["Config", "", "kai-config"] = json.loads(manifest["data"]["kai-config.json"])
    released = {key: each for key, each in found.items() if key not in hooks}
    # What OpenShift allows is a hook only there.
    assert released == {key: each for key, each in ours.items() if key not in hooks}
    assert {kind for kind, _, _ in ours.keys() & hooks} <= {
        "SecurityContextConstraints",
        "ClusterRole",
        "ClusterRoleBinding",
    }
    own = rendered(paths, namespace=namespace)
    for kind, place, hook in hooks:
        wanted = own[kind, f"{place}/{hook}"]
        if kind != "ConfigMap":
            assert found[kind, place, hook] == wanted
    assert len(hooks) == len({each[0:2] for each in own if "/" in each[1] and _is_hook(own[each])})


def _given(paths: dict[str, Any]) -> Document:
    values: Document = {}
    for path, value in paths.items():
        *parents, key = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = value
    return values


def _is_hook(obj: Document) -> bool:
    return "helm.sh/hook" in obj["metadata"].get("annotations", {})


def test_helm_finds_nothing_to_complain_about() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"global.registri": "a"}, "registri"),
        ({"global.tag": 3}, "/global/tag"),
        ({"global.fipsMode": "maybe"}, "/global/fipsMode"),
        ({"binder.ports.metricsPort": 70000}, "/binder/ports/metricsPort"),
        ({"kaiConfig.render": True}, "mutually exclusive"),
        ({"enabled": True}, "enabled: the chart has no such value"),
    ],
)
def test_helm_names_the_mistake(tmp_path: Path, paths: dict[str, Any], said: str) -> None:
    """operations:OC-19."""
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(_given(paths)))
    done = templates("kai", str(CHART), "-f", str(file))
    assert done.returncode != 0
    assert said in done.stderr.replace(".", "/") or said in done.stderr


def around(tmp_path: Path, values: Document) -> Path:
    """A chart with ours as a dependency."""
    chart = tmp_path / "platform"
    chart.mkdir()
    dependency = {
        "name": "kai-scheduler",
        "version": pykai.__version__,
        "repository": f"file://{CHART}",
        "condition": "kai-scheduler.enabled",
        "tags": ["gpu"],
    }
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (chart / "Chart.yaml").write_text(json.dumps(about))
    (chart / "values.yaml").write_text(json.dumps(values))
    done = helm("dependency", "update", str(chart))
    assert done.returncode == 0, done.stderr
    return chart


def test_it_is_a_part_of_another_chart(tmp_path: Path) -> None:
    """install:subchart."""
    own = {"operator": {"replicaCount": 2}, "scheduler": {"plugins": {"elastic": {"enabled": False}}}}
    everywhere = {"registry": "registry.test", "imageRegistry": "other.test", "storage": {"class": "fast"}}
    values = {"global": everywhere, "tags": {"gpu": True}, "kai-scheduler": {"enabled": True, **own}}
    chart = around(tmp_path, values)
    done = templates("platform", str(chart), "--namespace", "gpu-platform")
    assert done.returncode == 0, done.stderr
    found = by_key([each for each in yaml.safe_load_all(done.stdout) if each])
    hooks = {key for key, each in found.items() if _is_hook(each)}
    ours = release_objects(Release({**own, "global": {"registry": "registry.test"}}, "gpu-platform"))
    manifest = found["ConfigMap", "gpu-platform", "kai-config-manifest"]
    found["Config", "", "kai-config"] = json.loads(manifest["data"]["kai-config.json"])
    assert {key: each for key, each in found.items() if key not in hooks} == by_key(ours[1:])
    switched_off = templates("platform", str(chart), "--set", "kai-scheduler.enabled=false")
    assert switched_off.returncode == 0, switched_off.stderr
    assert not [each for each in yaml.safe_load_all(switched_off.stdout) if each]


def test_mistakes_are_named_inside_of_another_chart(tmp_path: Path) -> None:
    """install:subchart: but those in globals, which may be of other charts."""
    chart = around(tmp_path, {"global": {"tag": 3}, "kai-scheduler": {"bindr": {}}})
    done = templates("platform", str(chart))
    assert done.returncode != 0
    assert "bindr" in done.stderr
    assert "/global/tag" in done.stderr


@pytest.mark.parametrize(
    ("version", "works"),
    [("v1.33.1-eks-1de2ab1", True), ("v1.30.5-gke.1014001", True), ("v1.31.4+k3s1", True), ("v1.29.14", False)],
)
def test_helm_refuses_a_kubernetes_that_is_too_old(version: str, works: bool) -> None:
    """install:kubernetes."""
    done = templates("kai", str(CHART), version=version)
    assert (done.returncode == 0) is works, done.stderr
    assert works or f"kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes {version}" in done.stderr


def test_definitions_come_first_and_apart() -> None:
    listed = list(yaml.safe_load_all(helm("show", "crds", str(CHART)).stdout))
    assert len([each for each in listed if each]) == 6
    assert yaml.safe_load(helm("show", "values", str(CHART)).stdout) == default_values()
