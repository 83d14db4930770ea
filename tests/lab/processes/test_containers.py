"""Command lines and environments of containers that run as processes (operations:OD-21)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykai.lab.processes.containers import PROGRAMS, Surroundings, command_line, environment_of
from pykai.lab.processes.failures import CannotRun

Document = dict[str, Any]
MAPS = {"settings": {"MODE": "fast", "LEVEL": "3"}}
SECRETS = {"login": {"password": "s3cret"}}


def around(**volumes: str) -> Surroundings:
    pod = {
        "metadata": {"name": "binder-1", "namespace": "kai-scheduler", "uid": "u-1", "labels": {"app": "binder"}},
        "spec": {"nodeName": "node-0", "serviceAccountName": "binder"},
    }
    folders = {name: Path(folder) for name, folder in volumes.items()}
    return Surroundings(pod, "10.200.3.4", "127.200.3.4", folders, MAPS.get, SECRETS.get, {"PATH": "/bin"})


def container(*arguments: str, **fields: Any) -> Document:
    return {"name": "binder", "image": "kai", "command": ["kai", "run", "binder"], "args": list(arguments), **fields}


def words(of: Document, **volumes: str) -> list[str]:
    return command_line(of, around(**volumes), {"POD_NAME": "binder-1"})


def test_the_program_is_ours_and_its_arguments_are_expanded() -> None:
    program, *arguments = words(container("--qps=20", "--name=$(POD_NAME)", "$(OTHER)", "$$(POD_NAME)"))
    assert program == str(PROGRAMS["kai"])
    assert arguments[:6] == ["run", "binder", "--qps=20", "--name=binder-1", "$(OTHER)", "$(POD_NAME)"]


def test_another_program_is_refused_by_name() -> None:
    with pytest.raises(CannotRun, match=r"the program 'sh' is not here; only these are: kai"):
        words({"name": "x", "command": ["sh", "-c", "true"]})


def test_an_image_without_a_command_starts_kai() -> None:
    assert words({"name": "x", "args": ["--version"]}) == [str(PROGRAMS["kai"]), "--version"]


def test_ports_are_those_of_the_pods_own_address() -> None:
    arguments = words(container("--metrics-bind-address=:9090", "--health-probe-bind-address", "127.0.0.1:1"))
    assert "--metrics-bind-address=127.200.3.4:9090" in arguments
    assert not [each for each in arguments if each.startswith("--health-probe-bind-address=")]
    assert "--host=127.200.3.4" in words({"name": "admission", "command": ["kai", "run", "admission"]})
    # Where nothing is said, the service would listen on every address.
    assert "--listen-address=127.200.3.4:8080" in words({"name": "s", "command": ["kai", "run", "scheduler"]})
    assert "--plugin-server-port=0" in words({"name": "s", "command": ["kai", "run", "scheduler"]})


def test_paths_of_mounts_lead_to_their_folders() -> None:
    mounts = [
        {"name": "config", "mountPath": "/etc/config"},
        {"name": "certificates", "mountPath": "/etc/config/certs/", "subPath": "one"},
    ]
    made = container(
        "--scheduler-conf=/etc/config/config.yaml", "/etc/configuration", "/etc/config/certs/a", volumeMounts=mounts
    )
    arguments = words(made, config="/pods/config", certificates="/pods/certs")
    assert arguments[3:6] == ["--scheduler-conf=/pods/config/config.yaml", "/etc/configuration", "/pods/certs/one/a"]


def test_a_folder_may_be_below_a_path_that_is_mounted() -> None:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "config", "mountPath": "/etc/config"}]
    made = container("--scheduler-conf=/etc/config/config.yaml", volumeMounts=mounts)
    arguments = words(made, tmp="/tmp/pods/tmp", config="/tmp/pods/config")
    assert arguments[3] == "--scheduler-conf=/tmp/pods/config/config.yaml"


def test_a_mount_of_a_volume_that_the_pod_lacks_is_refused() -> None:
    with pytest.raises(CannotRun, match="the pod has no volume 'config'"):
        words(container(volumeMounts=[{"name": "config", "mountPath": "/etc/config"}]))


def environment(*variables: Document, **fields: Any) -> dict[str, str]:
    return environment_of(container(env=list(variables), **fields), around())


def from_field(path: str) -> Document:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "binder-1"),
        ("metadata.namespace", "kai-scheduler"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "binder"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "node-0"),
        ("spec.serviceAccountName", "binder"),
        ("status.podIP", "10.200.3.4"),
    ],
)
def test_fields_of_the_pod_become_variables(path: str, value: str) -> None:
    assert environment(from_field(path))["X"] == value


def test_variables_come_from_maps_secrets_and_each_other() -> None:
    key = {"name": "login", "key": "password"}
    made = environment(
        {"name": "SECRET", "valueFrom": {"secretKeyRef": key}},
        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LEVEL"}}},
        {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "LEVEL", "optional": True}}},
        {"name": "BOTH", "value": "$(LEVEL)-$(SECRET)"},
        envFrom=[{"configMapRef": {"name": "settings"}, "prefix": "SET_"}],
    )
    expected = {"SECRET": "s3cret", "LEVEL": "3", "BOTH": "3-s3cret", "SET_MODE": "fast", "SET_LEVEL": "3"}
    assert made == {"PATH": "/bin", **expected}


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "a"}}, "configmap 'none' not found"),
        ({"configMapKeyRef": {"name": "settings", "key": "a"}}, "no key 'a' in configmap"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef is not supported here"),
        ({"fieldRef": {"fieldPath": "status.hostIPs"}}, "the field status.hostIPs is not supported here"),
    ],
)
def test_what_is_missing_or_unknown_is_named(variable: Document, says: str) -> None:
    with pytest.raises(CannotRun, match=says):
        environment({"name": "X", "valueFrom": variable})


def test_temporary_files_go_where_tmp_is_mounted() -> None:
    made = container(volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])
    assert environment_of(made, around(tmp="/pods/tmp"))["TMPDIR"] == "/pods/tmp"
