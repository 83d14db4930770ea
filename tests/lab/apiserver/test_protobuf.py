"""Bodies in protobuf become what JSON would have given.

`protobuf_bodies.json` holds bodies that Kubernetes' own Go serializer made, each with the same object as Go's JSON.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from pykai.lab.apiserver.protobuf import decode

BODIES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "protobuf_bodies.json").read_text())
BY_KIND = {body["json"]["kind"]: bytes.fromhex(body["hex"]) for body in BODIES}


def without_empty(value: Any) -> Any:
    """JSON as Go writes it has empty structs and nulls that mean nothing."""
    if isinstance(value, dict):
        kept = {name: without_empty(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner is not None and inner != {}}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


def message(*entries: bytes) -> bytes:
    return b"".join(entries)


def field(number: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes([number << 3 | 2, len(body)]) + body


def body_of(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, raw)


@pytest.mark.parametrize("body", BODIES, ids=[body["json"]["kind"] for body in BODIES])
def test_bodies_of_the_go_serializer_read_as_its_json(body: dict[str, Any]) -> None:
    assert without_empty(decode(bytes.fromhex(body["hex"]))) == without_empty(body["json"])


def test_a_pointer_to_nothing_stays_and_a_zero_value_goes() -> None:
    spec = decode(BY_KIND["Job"])["spec"]
    assert spec["parallelism"] == 0  # a pointer
    assert spec["template"]["spec"]["volumes"] == [{"name": "scratch", "emptyDir": {}}]
    assert "hostNetwork" not in spec["template"]["spec"]  # false, held by value
    assert "status" not in decode(BY_KIND["Job"])


def test_the_forms_of_scalars() -> None:
    assert decode(BY_KIND["Secret"])["data"] == {"k": "AAEC/w=="}
    assert [port["targetPort"] for port in decode(BY_KIND["Service"])["spec"]["ports"]] == ["http", -1]
    assert decode(BY_KIND["Lease"])["spec"]["renewTime"] == "2026-01-02T03:04:05.123456Z"
    assert decode(BY_KIND["Namespace"])["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
    limits = decode(BY_KIND["Job"])["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1500m", "nvidia.com/gpu": "2"}


def test_options_are_known_in_every_group() -> None:
    raw = BY_KIND["DeleteOptions"]
    assert decode(raw)["propagationPolicy"] == "Background"
    inner = decode(raw)
    moved = decode(raw.replace(field(1, b"v1"), field(1, b"xx")))
    assert moved == {**inner, "apiVersion": "xx"}


def test_unknown_fields_are_skipped() -> None:
    unknown = bytes([99 << 3 & 0x7F | 0x80 | 2, 99 >> 4, 3]) + b"abc"
    metadata = field(1, field(1, b"lab"))
    assert decode(body_of("v1", "Namespace", metadata + unknown)) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "lab"},
    }


def test_numbers_may_come_packed() -> None:
    # PodSecurityContext.supplementalGroups = 4, in a pod's spec (2) . securityContext (14)
    packed = field(4, bytes([1, 0x80, 0x01]))
    pod = decode(body_of("v1", "Pod", field(2, field(14, packed))))
    assert pod["spec"]["securityContext"]["supplementalGroups"] == [1, 128]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{}", "does not start with"),
        (b"k8s\0\x0a\x7f", "cut short"),
        (b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "damaged"),
        (b"k8s\0\x0b", "wire type 3"),
        (body_of("example.com/v1", "Thing", b""), "no protobuf is known for kind 'Thing'"),
        (body_of("v1", "Namespace", bytes([1 << 3, 5])), "wrong wire type"),
        (body_of("v1", "Namespace", field(1, field(1, b"\xff"))), "not UTF-8"),
    ],
)
def test_a_broken_body_is_refused_with_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decode(body)


def test_every_prefix_of_a_body_is_read_or_refused() -> None:
    whole = BY_KIND["CustomResourceDefinition"]
    for length in range(len(whole)):
        # Any other exception fails the test.
        with contextlib.suppress(ValueError):
            decode(whole[:length])
