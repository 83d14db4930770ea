"""Kubeconfig files, service accounts and plugins: credentials, and errors that name file and field."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykai.kube import credentials, kubeconfig
from pykai.kube.credentials import TokenFileCredentials, in_cluster
from pykai.kube.errors import CredentialsError
from pykai.kube.execplugin import ExecCredentials
from pykai.kube.http import HttpTransport, RequestCredentials
from pykai.kube.kubeconfig import ExecConfig, RestConfig


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    current: str | None = "main",
    context: dict[str, Any] | None = None,
) -> Path:
    """A kubeconfig with one context `main` of cluster `c` and user `u`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "c", "cluster": cluster if cluster is not None else {"server": "https://host:6443"}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "main", "context": context or {"cluster": "c", "user": "u", "namespace": "ns"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def read(tmp_path: Path, **parts: Any) -> RestConfig:
    return kubeconfig.load_rest_config([write(tmp_path / "config", **parts)])


def test_server_and_token(tmp_path: Path) -> None:
    access = read(tmp_path, user={"token": "secret"})
    assert access.server == "https://host:6443"
    assert access.namespace == "ns"
    assert access.authorization == "Bearer secret"


def test_data_of_certificates(tmp_path: Path) -> None:
    access = read(
        tmp_path,
        cluster={"server": "https://h", "certificate-authority-data": encoded(b"CA"), "tls-server-name": "other"},
        user={"client-certificate-data": encoded(b"CERT"), "client-key-data": encoded(b"KEY")},
    )
    assert access.ca == b"CA"
    assert access.server_name == "other"
    assert access.certificate is not None
    assert (access.certificate.certificate, access.certificate.key) == (b"CERT", b"KEY")


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("ca", "cert", "key"):
        (tmp_path / "pki" / name).write_bytes(name.encode())
    access = read(
        tmp_path,
        cluster={"server": "https://h", "certificate-authority": "pki/ca"},
        user={"client-certificate": "pki/cert", "client-key": str(tmp_path / "pki" / "key"), "tokenFile": "pki/token"},
    )
    assert access.ca == b"ca"
    assert access.certificate is not None
    assert (access.certificate.certificate, access.certificate.key) == (b"cert", b"key")
    assert access.token_file == tmp_path / "pki" / "token"


def test_a_token_wins_over_a_token_file(tmp_path: Path) -> None:
    access = read(tmp_path, user={"token": "t", "tokenFile": "elsewhere"})
    assert access.token_file is None
    assert access.authorization == "Bearer t"


def test_user_name_and_password(tmp_path: Path) -> None:
    assert read(tmp_path, user={"username": "a", "password": "b"}).authorization == "Basic " + encoded(b"a:b")


def test_insecure(tmp_path: Path) -> None:
    assert read(tmp_path, cluster={"server": "https://h", "insecure-skip-tls-verify": True}).insecure


def test_the_first_file_that_says_something_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "config", current=None, user={"token": "first"})
    second = write(tmp_path / "b" / "config", user={"token": "second"})
    document = yaml.safe_load(second.read_text())
    document["users"].append({"name": "only-here", "user": {"token": "third"}})
    document["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "only-here"}})
    second.write_text(yaml.safe_dump(document))
    assert kubeconfig.load_rest_config([first, second]).authorization == "Bearer first"
    assert kubeconfig.load_rest_config([first, second], "other").authorization == "Bearer third"
    assert kubeconfig.load_rest_config([second, first]).authorization == "Bearer second"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"current": None}, "current-context is not set; contexts there: main"),
        ({"current": "gone"}, "there is no context 'gone'; contexts there: main"),
        ({"context": {"cluster": "x", "user": "u"}}, r"contexts\[name=main\].context.cluster: there is no cluster 'x'"),
        ({"context": {"cluster": "c", "user": "x"}}, r"contexts\[name=main\].context.user: there is no user 'x'"),
        ({"cluster": {}}, r"clusters\[name=c\].cluster.server: expected an http or https URL"),
        ({"cluster": {"server": "host:6443"}}, "got 'host:6443'"),
        ({"cluster": {"server": "https://h", "proxy-url": "http://p"}}, "proxy-url: is not supported"),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": "%%%"}},
            r"clusters\[name=c\].cluster.certificate-authority-data: not base64",
        ),
        ({"cluster": {"server": "https://h", "certificate-authority": "gone.crt"}}, "gone.crt cannot be read"),
        (
            {
                "cluster": {
                    "server": "https://h",
                    "certificate-authority-data": encoded(b"x"),
                    "insecure-skip-tls-verify": True,
                }
            },
            "contradicts",
        ),
        ({"user": {"token": 7}}, r"users\[name=u\].user.token: expected text, got int"),
        ({"user": {"client-key-data": encoded(b"k")}}, "client-certificate-data: missing"),
        ({"user": {"client-certificate-data": encoded(b"k")}}, "client-key-data: missing"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider: is not supported; use an exec plugin"),
        ({"user": {"as": "root"}}, "user.as: is not supported"),
        ({"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}}, "exec.command: missing"),
        (
            {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}},
            "exec.apiVersion: expected one of",
        ),
        (
            {
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "x",
                        "interactiveMode": "Always",
                    }
                }
            },
            "interactiveMode: the plugin wants a terminal",
        ),
        (
            {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "args": [1]}}},
            "exec.args: expected a list of texts",
        ),
    ],
)
def test_errors_name_file_and_field(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(CredentialsError, match=message) as caught:
        read(tmp_path, **parts)
    assert str(tmp_path / "config") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("users: [", "no YAML in line"),
        ("just words", "expected a Config object"),
        ("users: 7", "users: expected a list"),
        ("users: [{user: {}}]", r"users\[0\].name: expected text"),
        ("users: [{name: u, user: 7}]", r"users\[name=u\].user: expected an object"),
        ("", "current-context is not set"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=message):
        kubeconfig.load_rest_config([path])


def test_broken_yaml_does_not_show_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users:\n- {name: u, user: {token: 'very-secret}}\n")
    with pytest.raises(CredentialsError) as caught:
        kubeconfig.load_rest_config([path])
    assert "very-secret" not in str(caught.value)


def test_access_is_not_printed(tmp_path: Path) -> None:
    assert "very-secret" not in repr(read(tmp_path, user={"token": "very-secret"}))


def server_of(tmp_path: Path, kubeconfig: Path | None = None, **environment: str) -> str:
    account = tmp_path / "account"
    account.mkdir(exist_ok=True)
    (account / "ca.crt").write_bytes(b"CA")
    (account / "token").write_text("t")
    home = tmp_path / "home" / "config"
    return credentials._connect(kubeconfig, "", environment, home, account).server


def test_where_the_answer_comes_from(tmp_path: Path) -> None:
    def saying(name: str) -> Path:
        return write(tmp_path / name / "config", cluster={"server": f"https://{name}"})

    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(CredentialsError, match="give --kubeconfig"):
        server_of(tmp_path)
    saying("home")
    assert server_of(tmp_path) == "https://home"
    assert server_of(tmp_path, None, **inside) == "https://10.0.0.1:443"
    listed = os.pathsep.join(["", str(tmp_path / "absent"), str(saying("env"))])
    assert server_of(tmp_path, None, KUBECONFIG=listed, **inside) == "https://env"
    assert server_of(tmp_path, saying("flag"), KUBECONFIG=listed, **inside) == "https://flag"
    with pytest.raises(CredentialsError, match="none of these files exists"):
        server_of(tmp_path, KUBECONFIG=str(tmp_path / "absent"))
    with pytest.raises(CredentialsError, match="cannot be read"):
        server_of(tmp_path, tmp_path / "absent")


def test_a_service_account(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"CA")
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert in_cluster(inside, tmp_path).server == "https://[fd00::1]:6443"
    with pytest.raises(CredentialsError, match=r"ca\.crt"):
        in_cluster(inside, tmp_path / "absent")


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    time_s = 0.0
    path = tmp_path / "token"
    source = TokenFileCredentials(path, now=lambda: time_s)
    with pytest.raises(CredentialsError, match="token"):
        await source.current()
    path.write_text(" one\n")
    assert (await source.current()).authorization == "Bearer one"
    path.write_text("two")
    assert (await source.current()).authorization == "Bearer one"
    time_s = 61.0
    assert (await source.current()).authorization == "Bearer two"
    path.write_text("three")
    assert await source.refresh_after_401(RequestCredentials("Bearer two"))
    assert (await source.current()).authorization == "Bearer three"
    assert not await source.refresh_after_401(RequestCredentials("Bearer three"))
    # In the middle of being replaced: the last one holds.
    path.unlink()
    time_s = 200.0
    assert (await source.current()).authorization == "Bearer three"
    path.write_text("")
    assert (await source.current()).authorization == "Bearer three"


def plugin(tmp_path: Path, *lines: str, version: str = "v1", **options: Any) -> ExecConfig:
    """A plugin that counts its runs in `runs` and then does what the lines of Python say."""
    path = tmp_path / "plugin"
    runs = tmp_path / "runs"
    head = [f"#!{sys.executable} -S", "import json, os, sys", f"open({str(runs)!r}, 'a').write('x')"]
    path.write_text("\n".join([*head, *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    api_version = f"client.authentication.k8s.io/{version}"
    return ExecConfig("config: users[name=u].user.exec", str(path), (), {"SAID": "hello"}, api_version, **options)


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


def saying(version: str = "v1", **fields: str) -> str:
    document = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "status": fields}
    return f"print({json.dumps(document)!r})"


ACCESS = RestConfig("https://host:6443", ca=b"CA")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugin_is_asked_once_and_again_before_it_expires(tmp_path: Path, version: str) -> None:
    time_s = 1767225600.0  # 2026-01-01
    line = saying(version, token="secret", expirationTimestamp="2026-01-01T01:00:00Z")
    source = ExecCredentials(plugin(tmp_path, line, version=version), ACCESS, now=lambda: time_s)
    assert (await source.current()).authorization == "Bearer secret"
    await source.current()
    assert runs(tmp_path) == 1
    time_s += 3595
    await source.current()
    assert runs(tmp_path) == 2


async def test_a_plugin_is_asked_again_when_refused_but_once_for_many(tmp_path: Path) -> None:
    source = ExecCredentials(plugin(tmp_path, saying(token="t")), ACCESS)
    shown = await source.current()
    assert await source.refresh_after_401(shown)
    assert await source.current()
    assert await source.refresh_after_401(shown)
    assert await source.current()
    assert runs(tmp_path) == 2


async def test_a_credential_plugin_gets_the_cluster_info(tmp_path: Path) -> None:
    echo = (
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])",
        "token = json.dumps([os.environ['SAID'], info])",
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': info['kind'], 'status': {'token': token}}))",
    )
    source = ExecCredentials(plugin(tmp_path, *echo, provide_cluster_info=True), ACCESS)
    said, info = json.loads((await source.current()).authorization.removeprefix("Bearer "))
    assert said == "hello"
    assert info == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": "https://host:6443", "certificate-authority-data": encoded(b"CA")},
        },
    }


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    source = ExecCredentials(plugin(tmp_path, saying(clientCertificateData="CERT", clientKeyData="KEY")), ACCESS)
    certificate = (await source.current()).certificate
    assert certificate is not None
    assert (certificate.certificate, certificate.key) == (b"CERT", b"KEY")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("print('very-secret')",), "printed no ExecCredential"),
        (("sys.stderr.write('first\\nlogin expired\\n'); print('very-secret'); sys.exit(3)",), "3: login expired"),
        ((saying("v1beta1", token="very-secret"),), "not ExecCredential of client.authentication.k8s.io/v1"),
        ((saying(),), "neither status.token nor a client certificate"),
        ((saying(clientKeyData="very-secret"),), "a key without its certificate"),
        ((saying(token="very-secret", expirationTimestamp="soon"),), "expirationTimestamp"),
        (("import time; time.sleep(60)",), "did not end within 0.2 s"),
    ],
)
async def test_plugins_that_fail(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    source = ExecCredentials(plugin(tmp_path, *lines), ACCESS, timeout_s=0.2 if "sleep" in lines[0] else 20)
    with pytest.raises(CredentialsError, match=message) as caught:
        await source.current()
    assert "config: users[name=u].user.exec" in str(caught.value)
    assert "very-secret" not in str(caught.value)


async def test_a_plugin_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    absent = ExecConfig("f: e", "no-such-plugin-here", (), {}, "client.authentication.k8s.io/v1", "run: apt install it")
    with pytest.raises(CredentialsError, match=r"no-such-plugin-here.*apt install it"):
        await ExecCredentials(absent, ACCESS).current()


def test_paths_of_plugins(tmp_path: Path) -> None:
    def command(text: str) -> str:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": text, "args": ["get"]}}
        access = read(tmp_path, user=user)
        assert access.exec is not None
        assert isinstance(credentials.transport_for(access), HttpTransport)
        return access.exec.command

    assert command("aws") == "aws"
    assert command("./bin/aws") == str(tmp_path / "bin" / "aws")
    assert command("/usr/bin/aws") == "/usr/bin/aws"
