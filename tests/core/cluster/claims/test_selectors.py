"""CEL selectors over devices, as Kubernetes evaluates them: gpu:D-20, D-23."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.resource import Device
from pykai.core.cluster.claims.selectors import (
    EntryRead,
    SelectorError,
    _closing_brackets,
    compile_selector,
    parse_expression,
)
from tests.core.deviceobjects import DRIVER, gpu

G = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def made(**facts: Any) -> Device:
    return msgspec.convert(gpu("gpu-0", **facts), Device)


A100 = made(
    capacity={"memory": "40Gi", "half": "500m", "net.example.com/ports": "2"},
    model="A100",
    index=3,
    healthy=True,
    software={"version": "1.2.3-rc.1+build.7"},
    **{"net.example.com/speed": "fast", f"{DRIVER}/numa": 1},
)


def says(expression: str, device: Device = A100) -> bool:
    return compile_selector(expression).matches(DRIVER, device)


def problem(expression: str, device: Device = A100) -> str:
    with pytest.raises(SelectorError) as raised:
        says(expression, device)
    return str(raised.value)


@pytest.mark.parametrize(
    ("expression", "yes"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "other"', False),
        (f'{G}.model == "A100"', True),
        (f'{G}.model == "H100"', False),
        (f'{G}["model"] == "A100"', True),
        (f"{G}.index >= 3", True),
        (f"{G}.index > 3", False),
        (f"{G}.healthy", True),
        (f"!{G}.healthy", False),
        (f"{G}.numa == 1", True),
        ('device.attributes["net.example.com"].speed == "fast"', True),
        ('device.capacity["net.example.com"].ports.asInteger() == 2', True),
        (f'{G}.model in ["A100", "H100"]', True),
        (f'{G}.model.matches("^A[0-9]+$") && {G}.model.lowerAscii().startsWith("a")', True),
        (f'{G}.exists(name, name == "index")', True),
        ("device.allowMultipleAllocations", False),
        (f"cel.bind(g, {G}, g.index == 3 && g.healthy)", True),
        ("true", True),
    ],
)
def test_d20_a_device_is_seen_by_driver_attributes_and_capacity(expression: str, yes: bool) -> None:
    assert says(expression) is yes


@pytest.mark.parametrize(
    ("expression", "yes"),
    [
        ('has(device.attributes["no.such"].model)', False),
        ('device.attributes["no.such"].?model.orValue("none") == "none"', True),
        ('device.attributes[?"no.such"].?model.orValue("none") == "none"', True),
        ('device.attributes[?"no.such"].hasValue()', True),
        ('size(device.capacity["no.such"]) == 0', True),
        ('"no.such" in device.attributes', False),
        (f'"{DRIVER}" in device.attributes', True),
        (f"has({G}.model) && !has({G}.nothing)", True),
        # Text that merely looks like the indexing of a domain stays text.
        ('\'device.attributes["x"]\' == "device.attributes[\\"x\\"]"', True),
        (f"{G} // device.attributes[\n.index == 3", True),
    ],
)
def test_d20_a_domain_without_entries_is_an_empty_map_but_not_contained(expression: str, yes: bool) -> None:
    assert says(expression) is yes


@pytest.mark.parametrize(
    ("expression", "yes"),
    [
        (f'{G}.software.isGreaterThan(semver("1.2.3-rc.0"))', True),
        (f'{G}.software.isGreaterThan(semver("1.2.3-rc.1"))', False),
        (f'{G}.software.isLessThan(semver("1.2.3"))', True),
        (f'{G}.software.isLessThan(semver("1.2.3-rc.1.1"))', True),
        (f'{G}.software.isLessThan(semver("1.2.3-rc.x"))', True),
        (f'{G}.software == semver("1.2.3-rc.1+other")', True),
        (f'{G}.software.compareTo(semver("2.0.0")) == -1', True),
        (f"{G}.software.major() == 1 && {G}.software.minor() == 2 && {G}.software.patch() == 3", True),
        ('semver("1.10.0").isGreaterThan(semver("1.9.0"))', True),
        ('isSemver("1.2.3") && !isSemver("v1.2") && !isSemver("01.2.3")', True),
        ('isSemver("v1.2", true) && semver("v01.2", true) == semver("1.2.0")', True),
    ],
)
def test_d20_versions_compare_as_semantic_versions(expression: str, yes: bool) -> None:
    assert says(expression) is yes


@pytest.mark.parametrize(
    ("expression", "yes"),
    [
        (f'{C}.memory == quantity("40960Mi")', True),
        (f'{C}.memory.isGreaterThan(quantity("39Gi"))', True),
        (f'{C}.memory.isGreaterThan(quantity("40Gi"))', False),
        (f'{C}.memory.isLessThan(quantity("41G"))', False),
        (f'{C}.memory.isLessThan(quantity("80Gi"))', True),
        (f'{C}.memory.compareTo(quantity("40Gi")) == 0 && {C}.memory.compareTo(quantity("1")) == 1', True),
        (f"{C}.half.sign() == 1 && !{C}.half.isInteger() && {C}.memory.isInteger()", True),
        (f"{C}.half.asApproximateFloat() == 0.5", True),
        (f'{C}.half.add({C}.half).asInteger() == 1 && {C}.half.add(1) == quantity("1500m")', True),
        (f'{C}.half.sub(quantity("1")).sign() == -1 && {C}.half.sub(1) == quantity("-500m")', True),
        ('isQuantity("1Gi") && !isQuantity("Gi")', True),
    ],
)
def test_d20_capacities_are_quantities(expression: str, yes: bool) -> None:
    assert says(expression) is yes


@pytest.mark.parametrize(
    ("expression", "about"),
    [
        (f'{G}.nothing == "x"', "nothing"),
        ('device.attributes["no.such"].model == "x"', "model"),
        (f"{G}.model > 3", "overload"),
        (f'{G}.model.isGreaterThan(quantity("1"))', "overload"),
        (f'{C}.memory.isGreaterThan(semver("1.0.0"))', "expected a quantity"),
        (f'{G}.software.isGreaterThan(quantity("1"))', "expected a version"),
        (f"{C}.half.asInteger() == 1", "not a whole number"),
        ('quantity("much").sign() == 1', "'much' is not a quantity"),
        ('semver("one").major() == 1', "'one' is not a semantic version"),
        ("1", "gives int, not bool"),
        (f"{G}.model", "gives string, not bool"),
        ("dyn(optional.of(true))", "gives a value that is not bool"),
        (f"{G}.index + 9223372036854775807 > 0", "overflow"),
        ("device.driver ==", "Syntax error"),
        ("device.vendor == 'x'", "vendor"),
        ('ip("10.0.0.1").family() == 4', "'ip'"),
        ("devices.driver == 'x'", "'devices.driver'"),
    ],
)
def test_d20_an_expression_that_cannot_be_evaluated_is_a_named_error(expression: str, about: str) -> None:
    assert about in problem(expression)
    assert problem(expression).startswith(f"selector {expression}: ")


def test_a_broken_value_of_a_device_is_an_error_of_selectors_that_read_it() -> None:
    broken = made(capacity={"memory": "lots"}, software={"version": "new"}, empty={})
    assert "'lots' is not a quantity" in problem(f"{C}.memory.isInteger()", broken)
    assert "'new' is not a semantic version" in problem(f"{G}.software.major() == 1", broken)
    assert says(f"!has({G}.empty)", broken)


def test_errors_are_cached_as_errors() -> None:
    assert problem(f"{G}.nothing == 1") == problem(f"{G}.nothing == 1")


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("device.driver == 'x'", ()),
        (f'{G}.model == "A100" && {G}["index"] == 1', (("attributes", "model"), ("attributes", "index"))),
        (f"has({G}.?model) || {C}[?'memory'].hasValue()", (("attributes", "model"), ("capacity", "memory"))),
        ("device . attributes [ 'gpu.example.com' ] . model == 'x'", (("attributes", "model"),)),
    ],
)
def test_what_an_expression_reads_is_found_in_its_text(expression: str, reads: tuple[tuple[str, str], ...]) -> None:
    assert parse_expression(expression).reads == tuple(EntryRead(table, DRIVER, name) for table, name in reads)


@pytest.mark.parametrize(
    "expression",
    [
        f"{G}.exists(k, k == 'model')",
        f"{G} == device.attributes['x']",
        "'x' in device.attributes",
        "device.attributes[device.driver].model == 'x'",
        "device.attributes['a' + 'b'].model == 'x'",
        "device.attributes[r'a'].model == 'x'",
        f"{G}['mo' + 'del'] == 'x'",
        "device == device",
        "device.attributes['open",
    ],
)
def test_an_expression_may_read_more_than_its_text_shows(expression: str) -> None:
    assert parse_expression(expression).reads is None


@given(
    model=st.sampled_from(["A100", "H100", None]),
    size=st.sampled_from(["40Gi", "80Gi", None]),
    serial=st.text(max_size=3),
    expression=st.sampled_from(
        [
            f'{G}.model == "A100"',
            f'has({C}.memory) && {C}.memory.isGreaterThan(quantity("50Gi"))',
            f'{G}.?model.orValue("") == "A100" || has({C}.memory)',
        ]
    ),
)
def test_handing_over_only_what_is_read_changes_no_answer(
    model: str | None, size: str | None, serial: str, expression: str
) -> None:
    """Comparing whole devices makes an expression read everything; the answers must be equal."""
    facts: dict[str, Any] = {"serial": serial} | ({} if model is None else {"model": model})
    device = made(capacity={} if size is None else {"memory": size}, **facts)
    whole = f"device == device && ({expression})"
    assert parse_expression(expression).reads is not None
    assert parse_expression(whole).reads is None

    def outcome(text: str) -> object:
        try:
            return says(text, device)
        except SelectorError:
            return "error"

    assert outcome(expression) == outcome(whole)


def test_without_the_library_selectors_are_refused_and_claims_without_them_work() -> None:
    """gpu:D-23; in a process of its own, where the library cannot be imported."""
    program = """
import sys
sys.modules["cel_expr_python"] = None
from tests.core.deviceobjects import claim_request, device_request, devices_of, gpus, offered, refusal_text
inventory = offered(gpus(2))
assert devices_of(inventory, claim_request(device_request(2))) == ["gpu-0", "gpu-1"]
print(refusal_text(inventory, claim_request(device_request(1, "fast"))))
"""
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert "pip install 'pykai[dra]'" in done.stdout


@pytest.mark.parametrize(
    ("expression", "about"),
    [
        ("'a'" + ".replace('a', 'aaaaaaaaaa')" * 3 + ".size() > 0", "calls 3 functions that put texts together"),
        (f"'{'a' * 300}'.replace('a', 'b').replace('b', 'c') == ''", "is longer than 256 bytes"),
        (f"'{'a' * 3000}'.replace('a', 'b') == ''", "is longer than 2048 bytes"),
        ("['a']" + ".map(x, x + x)" * 9 + ".size() > 0", "has 18 sums and loops, at most 16 are allowed"),
        ("cel.bind(a, 'x' + 'y', cel.bind(b, a + a, b.replace('x', b) == ''))", "has 4 sums and loops"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
        ("x" * (10 * 1024 + 1), "is longer than 10240 bytes"),
    ],
)
def test_an_expression_that_could_use_up_the_memory_is_refused(expression: str, about: str) -> None:
    if about == "has 4 sums and loops":
        # As many as are allowed beside a function that multiplies; one more is too many.
        assert says(expression) is False
        expression = expression.replace("a + a", "a + a + a")
        about = "has 5 sums and loops, at most 4 are allowed"
    with pytest.raises(SelectorError, match=re.escape(about)):
        says(expression)


def test_patterns_do_not_search_back() -> None:
    """RE2 reads a text once: backtracking engines would practically never finish this pattern."""
    assert says(f'"{"a" * 5000}!".matches("^(a+)+$")') is False


def test_many_brackets_without_an_end_are_read_once() -> None:
    """Searching the end of each would make the work quadratic."""
    steps = 0

    class Counted(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal steps
            steps += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    _closing_brackets([Counted("[") for _ in range(1000)])
    assert steps < 10_000
