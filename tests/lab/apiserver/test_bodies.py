"""Bodies that are large, or mean more than they say: bounded, and read while others are served.

This is about the embedded server's own insides, not about Kubernetes.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.kube.errors import ApiError, BadRequest
from pykai.kube.transport import Request
from pykai.lab.apiserver import negotiation
from pykai.lab.apiserver.negotiation import MAX_BODY, read_body, read_request_body
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, config_map

YAML = "application/yaml"
MAPS = "/api/v1/namespaces/default/configmaps"


def large_map(name: str) -> bytes:
    """A ConfigMap in YAML that is read beside the event loop."""
    lines = "".join(f"  key-{number}: text\n" for number in range(8000))
    return f"metadata: {{name: {name}}}\ndata:\n{lines}".encode()


async def test_others_are_answered_while_a_large_body_is_read(inside: ApiServer) -> None:
    api = Api(inside.transport())
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(60)

    # The reader has something to do until the test lets it go on.
    holding = asyncio.get_running_loop().run_in_executor(negotiation._BODY_READER_POOL, hold)
    await asyncio.to_thread(held.wait, 60)
    try:
        sending = asyncio.create_task(inside.transport().send(Request("POST", MAPS, {}, large_map("large"), YAML)))
        # The task gets every turn it could use.
        for _ in range(20):
            await asyncio.sleep(0)
        for number in range(5):
            assert (await api.create("configmaps", config_map(f"small-{number}"))).code == 201
            assert (await api.list("configmaps")).names == [f"small-{each}" for each in range(number + 1)]
        assert not sending.done()
    finally:
        release.set()
        await holding
    assert (await sending).status == 201
    assert len((await api.get("configmaps", "large")).body["data"]) == 8000


@pytest.mark.parametrize("media", [YAML, "application/json", "application/merge-patch+json"])
async def test_a_body_above_three_mebibytes_is_answered_413(inside: ApiServer, media: str) -> None:
    body = b'{"data": {"a": "' + b"x" * MAX_BODY + b'"}}'
    answer = await inside.transport().send(Request("POST", MAPS, {}, body, media))
    assert answer.status == 413
    assert msgspec.json.decode(answer.body)["reason"] == "RequestEntityTooLarge"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"a:\n" + b"- 1\n" * 700_000, "too many values"),
        (b"a: [" + b"1," * 1_400_000 + b"1]", "too many values"),
        (b"--- a\n" * 400_000, "too many values"),
        (b"".join(b"k%d: v\n" % number for number in range(280_000)), "too many values"),
        (b"a: " + b"[" * 2_900_000, "nested more than 200"),
        (b"a: " + b"{a: " * 700_000, "nested more than 200"),
        (b"- " * 1_400_000, "nested more than 200"),
        (b"? " * 1_400_000, "nested more than 200"),
        (b"a: !!int " + b"1:" * 1_000_000 + b"1", "is not a number"),
        (b"a: !!float " + b"1:" * 1_000_000 + b"1.5", "is not a number"),
        (b"a: " + b"9" * 2_900_000, "cannot be read"),
        (
            b"a0: &a0 {x: 1}\n"
            + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (at, at, b"*a%d," % (at - 1) * 9) for at in range(1, 30)),
            "aliases stand for too much",
        ),
    ],
    ids=[
        "list",
        "flow",
        "documents",
        "map",
        "flow lists",
        "flow maps",
        "lists",
        "keys",
        "sixties",
        "float",
        "int",
        "merge",
    ],
)
def test_yaml_written_to_do_harm_is_refused(body: bytes, says: str) -> None:
    """Deep nesting ended the process, merged aliases and numbers to the base of sixty never came to an end."""
    with pytest.raises(ApiError, match=says) as caught:
        read_body(body, YAML)
    assert caught.value.code == (413 if says == "too many values" else 400)


async def test_a_large_body_that_is_wrong_is_refused_like_a_small_one() -> None:
    for body in (b"a: [", b"a: [" + b" " * 100_000):
        with pytest.raises(BadRequest, match="the YAML body cannot be read"):
            await read_request_body(Request("POST", MAPS, {}, body, YAML))


def test_numbers_are_those_that_kubernetes_reads() -> None:
    text = b"[1, -4, 0x1f, 010, 0b11, 1.5, 1e3, 1.0e+3, .5, 22:22, 1:30.5, 2001-01-01, 1_000, 0]"
    assert read_body(b"a: " + text, YAML)["a"] == [
        *(1, -4, 31, 8, 3, 1.5, 1000.0, 1000.0, 0.5),
        *("22:22", "1:30.5", "2001-01-01", 1000, 0),
    ]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("abc:-#[]{}*&!1 \n\"'", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab1:", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(value=st.dictionaries(st.text("abc", min_size=1, max_size=3), _VALUES, max_size=4))
def test_yaml_and_json_of_the_same_value_are_the_same(value: dict[str, Any]) -> None:
    """JSON is YAML, so a body that begins with a comment takes the other way to the same value."""
    json = msgspec.json.encode(value)
    assert read_body(b"# yaml\n" + json, YAML) == read_body(json, "application/json")
