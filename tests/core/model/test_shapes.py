"""Requests of pods (gpu:G-1 to G-16 without DRA, cycle:TSK-1, TSK-2): pods with equal requests are one shape."""

import pytest

from pykai.api.core import Pod
from pykai.core.model.shapes import MAX_REQUEST, RequestError, ShapeRegister
from tests.core.builders import Raw, cluster
from tests.core.model.podshapes import AMD, GIB, GPU, SLICE, Requests, asked, container, pod, same, shape, sidecar

# Requests of the whole pod.


def test_containers_are_added_up() -> None:
    """gpu:G-1"""
    assert asked(
        container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 2, "memory": "1Gi", "ephemeral-storage": "1Ki"})
    ) == {"cpu": 2500, "memory": 2 * GIB, "ephemeral-storage": 1024}


def test_a_sidecar_runs_beside_the_containers() -> None:
    """gpu:G-1, gpu:T-16: one GPU each is two GPUs, not the larger of the two."""
    assert asked(container({GPU: 1, "cpu": 1}), init=[sidecar({GPU: 1, "cpu": 2})]) == {GPU: 2, "cpu": 3000}


def test_an_init_container_counts_only_where_it_requests_more() -> None:
    """gpu:G-1: resource by resource the larger of the two."""
    wanted = asked(container({"cpu": 1, "memory": "8Gi"}), init=[container({"cpu": 4, "memory": "1Gi", GPU: 2})])
    assert wanted == {"cpu": 4000, "memory": 8 * GIB, GPU: 2}


def test_init_containers_run_one_after_the_other() -> None:
    """gpu:G-1: the largest of them counts, not their sum."""
    assert asked(container({"cpu": 1}), init=[container({"cpu": 3}), container({"cpu": 2})]) == {"cpu": 3000}


def test_an_init_container_runs_beside_the_sidecars_declared_before_it_only() -> None:
    """gpu:G-1"""
    before = [sidecar({"cpu": 2}), container({"cpu": 3})]
    assert asked(container({"cpu": 1}), init=before) == {"cpu": 5000}
    assert asked(container({"cpu": 1}), init=before[::-1]) == {"cpu": 3000}


def test_overhead_is_added_but_never_in_gpus() -> None:
    """gpu:G-1"""
    overhead = {"cpu": "250m", "memory": "1Gi", "example.com/nic": 1, GPU: 4, SLICE: 4}
    ask = shape(container({"cpu": 1, GPU: 1}), overhead=overhead)
    expected = {"cpu": 1250, "memory": GIB, "example.com/nic": 1000, GPU: 1, "pods": 1}
    assert dict(ask.requests) == expected
    assert dict(ask.overhead) == {"cpu": 250, "memory": GIB, "example.com/nic": 1000}


def test_overhead_comes_on_top_of_the_init_containers() -> None:
    """gpu:G-1"""
    assert asked(container({"cpu": 1}), init=[container({"cpu": 4})], overhead={"cpu": 1}) == {"cpu": 5000}


def test_every_pod_takes_one_pod_slot() -> None:
    """gpu:G-1, cycle:NOD-6: whatever its containers say."""
    assert shape(container()).requests == (("pods", 1),)
    assert shape(container({"pods": 7})).requests == (("pods", 1),)


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    """cycle:TSK-1, Do better: resource by resource, overhead on top."""
    wanted = asked(
        container({"cpu": 4, "memory": "1Gi"}),
        init=[container({"cpu": 8})],
        resources={"requests": {"cpu": 2}},
        overhead={"cpu": 1},
    )
    assert wanted == {"cpu": 3000, "memory": GIB}


def test_requests_of_the_pod_may_be_larger_than_the_sum_of_its_containers() -> None:
    """cycle:TSK-1, Do better"""
    wanted = asked(container({"cpu": 1}), resources={"requests": {"cpu": 6, "memory": "2Gi"}})
    assert wanted == {"cpu": 6000, "memory": 2 * GIB}


def test_a_pod_level_block_without_requests_changes_nothing() -> None:
    """cycle:TSK-1"""
    assert asked(container({"cpu": 1}), resources={"limits": {"cpu": 6}}) == {"cpu": 1000}


def test_requests_of_zero_are_left_out() -> None:
    assert asked(container({"cpu": 0, "memory": "-1Gi", GPU: "0"})) == {}


def test_names_kubernetes_does_not_count_are_left_out() -> None:
    """cycle:R-2"""
    assert asked(container({"bananas": 1, "requests.example.com/x": 1, "cpu": 1})) == {"cpu": 1000}


def test_each_resource_has_its_unit() -> None:
    """gpu:G-4, cycle:R-2: whole for memory, storage, GPUs and MIG slices, thousandths for the rest."""
    wanted = asked(
        container(
            {
                "cpu": "1500m",
                "memory": "1Ki",
                "ephemeral-storage": "2Ki",
                "hugepages-2Mi": 1,
                "example.com/nic": 2,
                "attachable-volumes-x": 3,
                GPU: 2,
                "nvidia.com/mig-2g.10gb": 4,
            }
        )
    )
    assert wanted == {
        "cpu": 1500,
        "memory": 1024,
        "ephemeral-storage": 2048,
        "hugepages-2Mi": 1000,
        "example.com/nic": 2000,
        "attachable-volumes-x": 3000,
        GPU: 2,
        "nvidia.com/mig-2g.10gb": 4,
    }


def test_absurd_requests_stop_at_a_bound_instead_of_overflowing() -> None:
    huge = [container({"memory": "8Ei"}) for _ in range(5)]
    assert asked(*huge) == {"memory": MAX_REQUEST}
    several = shape(container({f"v{vendor}.example.com/gpu": "8E" for vendor in range(9)}))
    assert several.gpu.devices == MAX_REQUEST
    assert several.gpu_hundredths == MAX_REQUEST


def test_a_number_beyond_64_bits_is_read_too() -> None:
    assert asked(container({"cpu": 10**30})) == {"cpu": MAX_REQUEST}
    assert same(pod(container({"cpu": 10**30})), pod(container({"cpu": "1e30"})))


# Claims.


def test_a_pod_whose_resource_claim_does_not_exist_waits() -> None:
    """gpu:G-8: guessing would start the pod without its devices."""
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    result = cluster(nodes=1, gpus=1).queue("q").gang("dra", spec=claim).gang("plain").schedule()
    assert result.bound("plain") == 1
    assert result.bound("dra") == 0
    assert "resource claim default/mine does not exist" in result.why("dra")


# Interning: one shape for one meaning.


PLAIN: Requests = {"cpu": 1, "memory": "1Gi"}


def test_pods_that_differ_in_name_only_are_one_shape() -> None:
    register = ShapeRegister()
    first = register.shape_of(pod(container(PLAIN), name="a", labels={"x": "1"}))
    again = register.shape_of(pod(container(PLAIN), name="b", labels={"x": "2"}, annotations={"note": "anything"}))
    assert first is again
    assert register.shapes == [first]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod(container({"cpu": 1})), pod(container({"cpu": "1000m"}))),
        (pod(container({"memory": "1Gi"})), pod(container({"memory": "1024Mi"}))),
        (pod(container({"memory": 1024})), pod(container({"memory": "1Ki"}))),
        (pod(container({"cpu": 1.5})), pod(container({"cpu": "1500m"}))),
        (pod(container({"cpu": 2})), pod(container({"cpu": 1}), container({"cpu": 1}))),
        (pod(container({"cpu": 1}), init=[container({"cpu": 1})]), pod(container({"cpu": 1}))),
        (pod(container({"cpu": 1}), init=[sidecar({"cpu": 1})]), pod(container({"cpu": 2}))),
        (pod(container({"cpu": 1, GPU: 0})), pod(container({"cpu": 1}))),
        (pod(container({"cpu": 1}), overhead={"cpu": 0}), pod(container({"cpu": 1}))),
        (pod(container({"cpu": 2}), resources={"requests": {"cpu": 1}}), pod(container({"cpu": 1}))),
        (pod(container(PLAIN), namespace="a"), pod(container(PLAIN), namespace="b")),
        (
            pod(container(PLAIN), nodeSelector={"a": "1", "b": "2"}),
            pod(container(PLAIN), nodeSelector={"b": "2", "a": "1"}),
        ),
        (pod(container(PLAIN), priorityClassName="high", priority=7), pod(container(PLAIN))),
        (
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5"}),
            pod(container({**PLAIN, GPU: 1}), annotations={"gpu-fraction": "5e-1"}),
        ),
        (
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5", "gpu-memory": "7"}),
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5"}),
        ),
        (
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1"}),
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5"}),
        ),
        (
            pod(container(PLAIN, ports=[{"containerPort": 80}])),
            pod(container(PLAIN)),
        ),
        (
            pod(container(PLAIN, ports=[{"hostPort": 80}, {"hostPort": 81}])),
            pod(container(PLAIN, ports=[{"hostPort": 81, "protocol": "TCP"}, {"hostPort": 80, "hostIP": "0.0.0.0"}])),
        ),
        (
            pod(container(PLAIN), volumes=[{"name": "unused", "configMap": {"name": "x"}}]),
            pod(container(PLAIN)),
        ),
    ],
)
def test_specs_that_mean_the_same_are_one_shape(first: Pod, second: Pod) -> None:
    assert same(first, second)


def test_the_order_and_duration_of_tolerations_do_not_matter() -> None:
    """cycle:TSK-8"""
    tolerates_a = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    tolerates_b = {"key": "b", "value": "1"}
    first = pod(container(PLAIN), tolerations=[tolerates_a, tolerates_b])
    second = pod(
        container(PLAIN),
        tolerations=[{**tolerates_b, "operator": "Equal"}, {**tolerates_a, "tolerationSeconds": 300}, tolerates_a],
    )
    assert same(first, second)


NODE_TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}


def requiring(*terms: Raw) -> Raw:
    """An affinity to nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


NEAR_OTHERS: Raw = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}
WITH_CONFIG = container(PLAIN, envFrom=[{"configMapRef": {"name": "settings"}}])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod(container({"cpu": 1})), pod(container({"cpu": "1001m"}))),
        (pod(container({GPU: 1})), pod(container({AMD: 1}))),
        (pod(container(PLAIN)), pod(container(PLAIN), nodeSelector={"a": "1"})),
        (pod(container(PLAIN)), pod(container(PLAIN), tolerations=[{"operator": "Exists"}])),
        (pod(container(PLAIN)), pod(container(PLAIN, ports=[{"hostPort": 80}]))),
        (
            pod(container(PLAIN, ports=[{"hostPort": 80}])),
            pod(container(PLAIN, ports=[{"hostPort": 80, "protocol": "UDP"}])),
        ),
        (pod(container(PLAIN)), pod(container(PLAIN), affinity=requiring())),
        (pod(container(PLAIN), affinity=requiring()), pod(container(PLAIN), affinity=requiring(NODE_TERM))),
        (pod(container(PLAIN)), pod(container(PLAIN), affinity=NEAR_OTHERS)),
        (
            pod(container(PLAIN), affinity=NEAR_OTHERS, namespace="a"),
            pod(container(PLAIN), affinity=NEAR_OTHERS, namespace="b"),
        ),
        (pod(WITH_CONFIG, namespace="a"), pod(WITH_CONFIG, namespace="b")),
        (
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5"}),
            pod(container(PLAIN), annotations={"gpu-fraction": "0.501"}),
        ),
        (
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5"}),
            pod(container(PLAIN), annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
        ),
        (
            pod(container(PLAIN), annotations={"gpu-memory": "100"}),
            pod(container(PLAIN), annotations={"gpu-memory": "101"}),
        ),
        (pod(container({SLICE: 1})), pod(container(), annotations={SLICE: "1"})),
        (pod(WITH_CONFIG), pod(WITH_CONFIG, annotations={"runai/shared-gpu-configmap": "set"})),
    ],
)
def test_specs_that_mean_something_else_are_two_shapes(first: Pod, second: Pod) -> None:
    assert not same(first, second)


def test_shapes_are_numbered_in_the_order_they_appear() -> None:
    register = ShapeRegister()
    found = [register.shape_of(pod(container({"cpu": cpu}))) for cpu in (1, 2, 1, 3)]
    assert [each.id for each in found] == [0, 1, 0, 2]
    assert register.shapes == [found[0], found[1], found[3]]


def test_a_shape_that_is_kept_stays_the_same_and_no_number_is_given_twice() -> None:
    register = ShapeRegister()
    kept, gone = (register.shape_of(pod(container({"cpu": cpu}))) for cpu in (1, 2))
    register.retain_only({kept})
    assert (register.shapes, register.cached_specs) == ([kept], 1)
    assert register.shape_of(pod(container({"cpu": "1000m"}))) is kept
    again = register.shape_of(pod(container({"cpu": 2})))
    assert again is not gone
    assert [kept.id, gone.id, again.id] == [0, 1, 2]


def test_the_cache_of_equivalent_specs_is_bounded() -> None:
    register = ShapeRegister()
    for number in range(11_000):
        register.shape_of(pod(container(PLAIN), volumes=[{"name": f"scratch-{number}"}]))
    assert len(register.shapes) == 1
    assert register.cached_specs <= 10_000


# What cannot be read.


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (pod(container(), container({"cpu": "lots"})), "spec.containers[1].resources.requests.cpu"),
        (pod(container(), init=[container({GPU: "1x"})]), "spec.initContainers[0].resources.requests.nvidia.com/gpu"),
        (pod(container(), overhead={"memory": "?"}), "spec.overhead.memory"),
        (pod(container(), resources={"requests": {"cpu": "?"}}), "spec.resources.requests.cpu"),
    ],
)
def test_an_unreadable_request_is_named_by_its_path(broken: Pod, path: str) -> None:
    with pytest.raises(RequestError) as found:
        ShapeRegister().shape_of(broken)
    assert str(found.value).startswith(f"{path}: ")


def test_a_pod_with_an_unreadable_request_waits_and_is_harmless() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("broken", cpu="lots").gang("fine", gpu=1).schedule()
    assert result.bound("fine") == 1
    assert result.bound("broken") == 0
    assert "a request that cannot be read" in result.why("broken")
    [problem] = result.plan.problems
    assert "Pod/default/broken-0" in problem
    assert "spec.containers[0].resources.requests.cpu" in problem


def test_unreadable_pods_are_one_shape_that_costs_a_pod_slot_only() -> None:
    register = ShapeRegister()
    assert register.unreadable_shape() is register.unreadable_shape()
    assert register.unreadable_shape().requests == (("pods", 1),)
    assert register.unreadable_shape().unsupported


def test_the_random_name_of_a_token_volume_makes_no_difference() -> None:
    def with_token(letters: str, *needed: str) -> Pod:
        name = f"kube-api-access-{letters}"
        sources = [{"configMap": {"name": each}} for each in needed]
        return pod(
            container({"cpu": "1"}, volumeMounts=[{"name": name, "mountPath": "/var/run"}]),
            volumes=[{"name": name, "projected": {"sources": sources}}],
        )

    register = ShapeRegister()
    shape = register.shape_of(with_token("aaaaa", "kube-root-ca.crt"))
    assert shape.config_maps == ("kube-root-ca.crt",)
    for letters in ("bbbbb", "ccccc"):
        assert register.shape_of(with_token(letters, "kube-root-ca.crt")) is shape
    assert register.cached_specs == 1
    assert register.shape_of(with_token("ddddd", "other")).config_maps == ("other",)
