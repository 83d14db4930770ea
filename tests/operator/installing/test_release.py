"""What `kai install` installs, and how values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.api.decode import decode_as
from pykai.api.installation import ConfigSpec, SchedulingShard
from pykai.cli.install import install
from pykai.operator.chart.language import TemplateFailure
from pykai.operator.desired.settings import Settings
from pykai.operator.installing.givenvalues import ValueProblem, check_values, read_set
from pykai.operator.installing.release import Release, is_kept, is_made_once, release_objects, resource_of, surplus
from pykai.operator.installing.shadow import Observed, shadow_objects
from pykai.services.table import SERVICES
from tests.operator.chart.charts import config_in_hook, rendered


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("global.tag=v1", {"global": {"tag": "v1"}}),
        ("operator.replicaCount=2,global.jsonLog=true", {"operator": {"replicaCount": 2}, "global": {"jsonLog": True}}),
        ("binder.cdiEnabled=null", {"binder": {"cdiEnabled": None}}),
        ("global.nodeSelector.kubernetes\\.io/os=linux", {"global": {"nodeSelector": {"kubernetes.io/os": "linux"}}}),
        ("a=1\\,2", {"a": "1,2"}),
        ("a={b,2}", {"a": ["b", 2]}),
        ("a={b,c},d=007", {"a": ["b", "c"], "d": "007"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_set_reads_what_helm_reads(text: str, values: dict[str, Any]) -> None:
    assert read_set(text) == values


@pytest.mark.parametrize("text", ["global.tag", "global.tolerations[0].key=a"])
def test_what_cannot_be_set_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ValueProblem, match=r"KEY=VALUE|into a file"):
        read_set(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"global": {"registri": "a"}}, "global.registri: the chart has no such value; did you mean registry?"),
        ({"bindr": {}}, "bindr: the chart has no such value; did you mean binder?"),
        ({"global": {"tag": 3}}, "global.tag: expected text, not 3"),
        ({"global": "a"}, 'global: expected a map, not "a"'),
        ({"global": {"jsonLog": "true"}}, 'global.jsonLog: expected true or false, not "true"'),
        ({"operator": {"replicaCount": True}}, "operator.replicaCount: expected whole number of 0 or more, not true"),
        ({"operator": {"replicaCount": -1}}, "operator.replicaCount: expected 0 or more, not -1"),
        ({"global": {"fipsMode": "yes"}}, 'global.fipsMode: expected one of on, only, off, not "yes"'),
        ({"binder": {"ports": {"metricsPort": 70000}}}, "binder.ports.metricsPort: expected 1 to 65535, not 70000"),
        ({"scheduler": {"args": {"v": 5}}}, 'scheduler.args: expected texts only, not {"v": 5}'),
        ({"global": {"imagePullSecrets": ["a"]}}, 'global.imagePullSecrets: expected [{name: ...}], not ["a"]'),
        ({"global": {"tolerations": ["a"]}}, 'global.tolerations: expected a list of objects, not ["a"]'),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueProblem) as caught:
        check_values(values)
    assert str(caught.value) == said


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ValueProblem) as caught:
        check_values({"bindr": {}, "global": {"tag": 3}})
    assert len(str(caught.value).splitlines()) == 2


def test_an_installation_is_that_of_the_chart_without_its_hooks() -> None:
    """operations:10: the namespace comes first, the operator late, the Config last."""
    found = release_objects(Release())
    chart = rendered()
    hooks = {key for key, each in chart.items() if "helm.sh/hook" in each["metadata"].get("annotations", {})}
    own = {(each["kind"], each["metadata"]["name"]) for each in found}
    wanted = {key for key in chart if "/" not in key[1]} - hooks
    assert own == wanted | {("Namespace", "kai-scheduler"), ("Config", "kai-config")}
    for each in found:
        if each["kind"] not in ("Config", "Role", "RoleBinding") and each["metadata"]["name"] != "kai-scheduler":
            assert each == chart[each["kind"], each["metadata"]["name"]]
    assert found[0]["kind"] == "Namespace"
    assert [each["kind"] for each in found[-2:]] == ["Deployment", "Config"]
    assert found[-1] == config_in_hook(chart)


def test_openshift_gets_what_the_chart_lets_it_allow() -> None:
    """operations:OD-14: the same objects, which are no hooks here."""
    values = {"openshift": True, "numaPlacementExporter": {"enabled": True}}
    found = {(each["kind"], each["metadata"]["name"]): each for each in release_objects(Release(values))}
    chart = rendered({"openshift": True, "numaPlacementExporter.enabled": True})
    allowed = [
        ("SecurityContextConstraints", "kai-system"),
        ("SecurityContextConstraints", "kai-numa-placement-exporter"),
        ("ClusterRole", "kai-system-scc"),
        ("ClusterRoleBinding", "kai-system-scc"),
    ]
    for key in allowed:
        hook = chart[key]
        assert hook["metadata"].pop("annotations")["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert found[key] == hook
    order = [*found]
    assert max(map(order.index, allowed)) < order.index(("Deployment", "kai-operator"))
    assert found["Config", "kai-config"]["spec"]["global"]["openshift"] is True
    plain = {(each["kind"], each["metadata"]["name"]) for each in release_objects(Release())}
    assert plain.isdisjoint(allowed)


def test_openshift_lets_shadows_run() -> None:
    def made(*values: str) -> dict[str, dict[str, Any]]:
        printed = run("--dry-run", "--shadow", "--namespace", "beside", *values).output
        return {each["kind"]: each for each in yaml.safe_load_all(printed)}

    found = made("--set", "openshift=true")
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    allowed = found["SecurityContextConstraints"]
    assert allowed["users"] == ["system:serviceaccount:beside:kai-shadow"]
    assert allowed["runAsUser"] == {"type": "MustRunAs", "uid": container["securityContext"]["runAsUser"]}
    assert "SecurityContextConstraints" not in made()


def test_an_upgrade_makes_no_queue_that_a_user_deleted() -> None:
    assert "Queue" in {each["kind"] for each in release_objects(Release())}
    assert "Queue" not in {each["kind"] for each in release_objects(Release(is_install=False))}


def test_values_that_exclude_each_other_are_refused() -> None:
    """operations:OC-19."""
    with pytest.raises(TemplateFailure, match="mutually exclusive"):
        release_objects(Release({"kaiConfig": {"render": True}}))


def test_a_config_of_others_is_left_to_them() -> None:
    """operations:O-62."""
    own = {"kaiConfigDeployer": {"enabled": False}}
    assert "Config" not in {each["kind"] for each in release_objects(Release(own))}
    in_release = {**own, "kaiConfig": {"render": True}}
    assert "Config" in {each["kind"] for each in release_objects(Release(in_release))}


def test_what_users_work_in_is_made_once_and_kept() -> None:
    found = release_objects(Release())
    kept = {each["kind"] for each in found if is_kept(each)}
    assert kept == {"Namespace", "ServiceAccount", "Queue", "SchedulingShard"}
    assert {each["kind"] for each in found if is_made_once(each)} == kept - {"SchedulingShard"}


def test_every_object_has_a_field_by_which_it_is_known_again() -> None:
    """install:uninstall: an API server notes no owner of an object that has a name only."""
    shadows = list(yaml.safe_load_all(run("--dry-run", "--shadow").output))
    for each in (*release_objects(Release({"openshift": True})), *shadows):
        metadata = each["metadata"].keys() - {"name", "namespace"}
        assert is_kept(each) or metadata or each.keys() - {"apiVersion", "kind", "metadata"}, each


def test_what_is_not_wanted_any_more_is_found_in_reverse_order() -> None:
    before = [("v1", "ConfigMap", "ns", "a"), ("v1", "ConfigMap", "ns", "b"), ("v1", "Namespace", "", "ns")]
    after = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}]
    assert surplus(before, after) == [before[1], before[0]]


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("ClusterRole", "clusterroles"),
        ("PriorityClass", "priorityclasses"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("SecurityContextConstraints", "securitycontextconstraints"),
    ],
)
def test_kinds_are_where_the_api_server_has_them(kind: str, plural: str) -> None:
    assert resource_of("a.b/v1", kind, "").plural == plural
    assert resource_of("v1", kind, "ns").path("ns", "x") == f"/api/v1/namespaces/ns/{plural}/x"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(install, arguments)


def kinds(result: Result) -> set[str]:
    assert result.exit_code == 0, result.output
    return {each["kind"] for each in yaml.safe_load_all(result.output)}


def test_definitions_are_printed_only_when_asked_for() -> None:
    """`kubectl delete -f` of what is printed must not take every Queue along."""
    assert "CustomResourceDefinition" not in kinds(run("--dry-run"))
    assert "CustomResourceDefinition" in kinds(run("--dry-run", "--include-crds"))
    assert "goes with --dry-run" in run("--include-crds").output


def test_a_later_file_wins_and_set_wins_over_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("global: {tag: v1, registry: first.test}\n")
    second.write_text("global: {tag: v2}\n")
    given = ("--dry-run", "-f", str(first), "-f", str(second))
    assert "image: first.test/pykai:v2" in run(*given).output
    assert "image: first.test/pykai:v3" in run(*given, "--set", "global.tag=v3").output
    first.write_text("[]")
    assert "expected a map of values" in run(*given).output


def test_a_null_takes_a_default_away() -> None:
    assert "gpuFractionRuntimeClassName" in run("--dry-run").output
    without = run("--dry-run", "--set", "admission.gpuFractionRuntimeClassName=null")
    assert without.exit_code == 0, without.output
    assert "gpuFractionRuntimeClassName" not in without.output


def test_a_wrong_value_ends_the_command_before_anything_is_done() -> None:
    result = run("--set", "global.registri=a", "--kubeconfig", "/nowhere")
    assert result.exit_code == 1
    assert "did you mean registry?" in result.output


def test_a_shadow_only_reads() -> None:
    objects = list(yaml.safe_load_all(run("--dry-run", "--shadow", "--set", "global.registry=r.test").output))
    assert [each["kind"] for each in objects] == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
    ]
    assert {each["metadata"].get("namespace", "kai-shadow") for each in objects} == {"kai-shadow"}
    role = objects[2]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert not [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    (container,) = objects[4]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "r.test/pykai:0.1.0"
    given = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])
    flags = {flag.name: flag for flag in SERVICES["scheduler"].flags()}
    for name, value in given.items():
        flags[name].read(value)
    assert given["shadow"] == "true"
    assert (given["namespace"], given["scheduler-configmap"]) == ("kai-scheduler", "kai-scheduler-default")
    # The mounted file and the lease are the other scheduler's.
    assert given.keys().isdisjoint({"scheduler-conf", "leader-elect"})


def test_a_shadow_has_the_flags_of_the_shard_beside_it_and_its_own() -> None:
    values = {
        "scheduler": {"args": {"v": "4", "fast-bind": "false", "shadow": "false"}},
        "operator": {"replicaCount": 2},
    }
    pool = decode_as(SchedulingShard, {"metadata": {"name": "a100"}, "spec": {"partitionLabelValue": "a100"}})
    config = decode_as(ConfigSpec, {"namespace": "kai", "global": {"nodePoolLabelKey": "pool"}})
    objects = shadow_objects(Release(values).scope(), Observed(Settings(config), (pool,)))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    assert deployment["metadata"]["name"] == "kai-shadow-a100"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--namespace=kai", "--nodepool-label-key=pool", "--partition-label-value=a100", "--v=4"} <= set(
        container["args"]
    )
    assert {"--scheduler-configmap=kai-scheduler-a100", "--fast-bind=false", "--shadow=true"} <= set(container["args"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--shadow", "--dry-run", "--shard", "a100"),
            "--shard a100: there is no such SchedulingShard; known",
        ),
        (("--dry-run", "--shard", "default"), "--shard: goes with --shadow"),
        (("--shadow", "--dry-run", "--set", "scheduler.args.v=four"), "spec.args.v: 'four': "),
    ],
)
def test_a_shadow_that_cannot_be_is_refused(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(install, list(arguments))
    assert result.exit_code != 0
    assert said in result.output


def test_without_the_default_shard_of_the_chart_a_shadow_still_has_one() -> None:
    objects = list(yaml.safe_load_all(run("--dry-run", "--shadow", "--set", "defaultShard.enabled=false").output))
    assert objects[-1]["metadata"]["name"] == "kai-shadow-default"
