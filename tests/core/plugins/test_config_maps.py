"""A pod waits for the config maps its containers cannot start without (cycle:FLT-8, gpu:P-8)."""

from typing import Any

import pytest

from tests.core.builders import Cluster, Raw, Result, cluster


def spec(container: Raw | None = None, init: Raw | None = None, volumes: list[Raw] | None = None) -> Raw:
    found: Raw = {"containers": [{"name": "main", **(container or {})}], "volumes": volumes or []}
    if init is not None:
        found["initContainers"] = [{"name": "init", **init}]
    return found


def reference(name: str, optional: bool | None = None) -> Raw:
    return {"name": name} if optional is None else {"name": name, "optional": optional}


def variable(name: str, optional: bool | None = None) -> Raw:
    return {"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"key": "k", **reference(name, optional)}}}]}


def variables(name: str, optional: bool | None = None) -> Raw:
    return {"envFrom": [{"configMapRef": reference(name, optional)}]}


def volume(name: str, optional: bool | None = None) -> Raw:
    return {"name": "v", "configMap": reference(name, optional)}


def projected(*names: str, optional: bool | None = None) -> Raw:
    return {"name": "v", "projected": {"sources": [{"configMap": reference(name, optional)} for name in names]}}


MOUNTS = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


def waiting(pod_spec: Raw, **pod: Any) -> Cluster:
    return cluster(nodes=1).queue("q").gang("job", spec=pod_spec, **pod)


def missing(result: Result) -> list[str]:
    """Names of the config maps the pod waits for, none when it was placed."""
    if result.bound("job"):
        return []
    text = result.no_place("job").base
    prefix = "Scheduling conditions were not met for pod {pod}:\nConfigMap: Missing required configmaps: ["
    assert text.startswith(prefix)
    assert text.endswith("].\n")
    return text.removeprefix(prefix).removesuffix("].\n").split(" ")


@pytest.mark.parametrize(
    "pod_spec",
    [
        spec(variable("settings")),
        spec(variables("settings")),
        spec(MOUNTS, volumes=[volume("settings")]),
        spec(MOUNTS, volumes=[projected("settings")]),
        spec(init=variable("settings")),
        spec(init=variables("settings")),
        spec(init=MOUNTS, volumes=[volume("settings")]),
        spec(variable("settings", optional=False)),
        spec(variables("settings", optional=False)),
        spec(MOUNTS, volumes=[volume("settings", optional=False)]),
    ],
)
def test_a_pod_waits_until_its_config_map_exists(pod_spec: Raw) -> None:
    assert missing(waiting(pod_spec).schedule()) == ["settings"]
    assert missing(waiting(pod_spec).config_map("settings").schedule()) == []


def test_the_text_names_the_pod_and_what_it_lacks() -> None:
    """cycle:FLT-5, FLT-8"""
    assert waiting(spec(variables("settings"))).schedule().why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        "Scheduling conditions were not met for pod default/job-0:\n"
        "ConfigMap: Missing required configmaps: [settings].\n."
    )


@pytest.mark.parametrize(
    "pod_spec",
    [
        spec(variable("settings", optional=True)),
        spec(variables("settings", optional=True)),
        spec(MOUNTS, volumes=[volume("settings", optional=True)]),
        spec(MOUNTS, volumes=[projected("settings", optional=True)]),
    ],
)
def test_an_optional_config_map_need_not_exist(pod_spec: Raw) -> None:
    assert missing(waiting(pod_spec).schedule()) == []


def test_an_unmounted_volume_needs_nothing() -> None:
    assert missing(waiting(spec(volumes=[volume("settings")])).schedule()) == []
    assert missing(waiting(spec(volumes=[projected("settings")])).schedule()) == []
    other = {"volumeMounts": [{"name": "w", "mountPath": "/w"}]}
    assert missing(waiting(spec(other, volumes=[volume("settings")])).schedule()) == []


def test_variables_without_a_config_map_need_nothing() -> None:
    plain = {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}
    secret = {"envFrom": [{"secretRef": {"name": "password"}}]}
    assert missing(waiting(spec({**plain, **secret})).schedule()) == []


def test_all_missing_config_maps_are_named_once_and_sorted() -> None:
    pod_spec = spec({**variables("b"), **variable("c"), **MOUNTS}, init=variables("b"), volumes=[projected("d", "a")])
    assert missing(waiting(pod_spec).schedule()) == ["a", "b", "c", "d"]
    assert missing(waiting(pod_spec).config_map("a").config_map("c").schedule()) == ["b", "d"]


def test_a_config_map_counts_in_the_namespace_of_the_pod_only() -> None:
    assert missing(waiting(spec(variables("settings"))).config_map("settings", "other").schedule()) == ["settings"]
    twins = waiting(spec(variables("settings"))).config_map("settings", "other")
    result = twins.gang("job", namespace="other", spec=spec(variables("settings"))).schedule()
    assert result.bound("job") == 0
    assert result.bound("job", "other") == 1


def test_config_maps_that_gpu_sharing_will_create_are_not_required() -> None:
    """The binder makes them; their names start with the value of the annotation."""
    notes = {"runai/shared-gpu-configmap": "job-abc-shared-gpu"}
    made = spec({**variable("job-abc-shared-gpu-0"), **variables("job-abc-shared-gpu-0-evar")})
    assert missing(waiting(made, annotations=notes).schedule()) == []
    assert missing(waiting(made).schedule()) == ["job-abc-shared-gpu-0", "job-abc-shared-gpu-0-evar"]
    own = spec({**variable("job-abc-shared-gpu-0"), **variables("my-job-abc-shared-gpu")})
    assert missing(waiting(own, annotations=notes).schedule()) == ["my-job-abc-shared-gpu"]


def test_an_empty_annotation_excuses_nothing() -> None:
    notes = {"runai/shared-gpu-configmap": ""}
    assert missing(waiting(spec(variables("settings")), annotations=notes).schedule()) == ["settings"]


def test_no_eviction_helps_against_a_missing_config_map() -> None:
    """cycle:FLT-9, gpu:P-8"""
    assert waiting(spec(variables("settings"))).schedule().no_place("job").unresolvable


def test_a_gang_waits_as_a_whole_for_the_config_map_of_one_pod() -> None:
    made = cluster(nodes=1).queue("q").group("job", minMember=2, preemptibility="preemptible")
    made.pod("job-0", group="job").pod("job-1", group="job", spec=spec(variables("settings")))
    result = made.schedule()
    assert result.bound("job") == 0
    assert result.no_place("job").pod == "default/job-1"


def test_pods_that_need_other_config_maps_have_different_shapes() -> None:
    made = cluster(nodes=1).queue("q").config_map("one")
    result = made.gang("first", spec=spec(variables("one"))).gang("second", spec=spec(variables("two"))).schedule()
    assert result.bound("first") == 1
    assert result.bound("second") == 0
