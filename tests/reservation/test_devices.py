"""How the reservation program finds its device (gpu:RP-2)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

import pytest

from pykai.reservation import amdsmi, environment, nvml
from pykai.reservation.devices import DeviceSource, own_device
from pykai.reservation.failures import DeviceError, NotUsable
from tests.reservation.fakedrivers import printed, with_driver


def sees(*devices: str) -> DeviceSource:
    return DeviceSource("the driver", lambda: devices)


def is_absent(why: str = "there is none") -> DeviceSource:
    def ask() -> list[str]:
        raise NotUsable(why)

    return DeviceSource("the other driver", ask)


def test_the_first_driver_that_is_there_decides() -> None:
    assert own_device([is_absent(), sees("GPU-a"), sees("GPU-b")]) == "GPU-a"


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (
            [sees("GPU-a", "GPU-b")],
            "the driver found 2 devices (GPU-a, GPU-b), 1 was expected. The container sees more",
        ),
        ([sees()], "the driver found 0 devices, 1 was expected. Run reservation pods with the runtime class"),
        ([sees("GPU-a", "GPU-b"), sees("GPU-c")], "found 2 devices"),
        ([is_absent("no library")], "No GPU was found. the other driver: no library. Run reservation pods with"),
        ([], "No GPU was found."),
    ],
)
def test_anything_but_one_device_is_an_error_that_says_what_to_do(sources: list[DeviceSource], said: str) -> None:
    with pytest.raises(DeviceError) as refused:
        own_device(sources)
    assert said in str(refused.value)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(
    ("variables", "devices"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, ["GPU-a"]),
        ({"NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=GPU-a"}, ["GPU-a"]),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "INTEL_VISIBLE_DEVICES": "intel.com/gpu=card0"}, ["card0"]),
        ({"AMD_VISIBLE_DEVICES": "3"}, ["3"]),
        ({"HABANA_VISIBLE_DEVICES": "0, 1"}, ["0", "1"]),
    ],
)
def test_variables_of_device_plugins_name_devices(variables: dict[str, str], devices: list[str]) -> None:
    assert environment.visible_devices(variables) == devices


@pytest.mark.parametrize("word", ["all", "none", "void", ""])
def test_words_of_container_runtimes_name_none(word: str) -> None:
    with pytest.raises(NotUsable, match=r"NVIDIA_VISIBLE_DEVICES, .* names a device"):
        environment.visible_devices({"NVIDIA_VISIBLE_DEVICES": word})


def test_a_base_installation_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotUsable, match=r"pip install 'pykai\[nvidia\]'"):
        nvml.visible_devices()


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has the driver")
@pytest.mark.parametrize("ask", [nvml.visible_devices, amdsmi.visible_devices])
def test_without_a_driver_it_is_asked_in_another_way(ask: Callable[[], list[str]]) -> None:
    with pytest.raises(NotUsable, match="is not in this container"):
        ask()


def test_nvml_names_the_gpu_of_the_container() -> None:
    """The driver knows better than the environment."""
    assert printed(with_driver("NVML", "GPU-7", NVIDIA_VISIBLE_DEVICES="GPU-8")) == (0, "GPU-7")


def test_two_gpus_of_nvml_are_an_error() -> None:
    code, said = printed(with_driver("NVML", "GPU-7,GPU-8"))
    assert (code, said.partition(". ")[0]) == (1, "Error: NVML found 2 devices (GPU-7, GPU-8), 1 was expected")


def test_a_driver_that_is_not_loaded_is_an_error_that_says_where_to_look() -> None:
    code, said = printed(with_driver("NVML", "GPU-7", status="9", NVIDIA_VISIBLE_DEVICES="GPU-8"))
    assert code == 1
    assert "Driver Not Loaded" in said
    assert "nvidia-smi" in said


def test_amd_smi_names_the_gpu_of_the_container() -> None:
    assert printed(with_driver("AMD", "73ff74b5-0000-1000-803d-5c5c0c5c5c5c@0")) == (
        0,
        "73ff74b5-0000-1000-803d-5c5c0c5c5c5c",
    )
    code, said = printed(with_driver("AMD", "a@0", status="4"))
    assert (code, "amdsmi_init of AMD SMI failed with status 4" in said) == (1, True)


#: one GPU at 0000:c1:00.0, the other at 0001:2a:1f.7
TWO_OF_AMD = "first@c100,second@12aff"
ASKING = """
import sys
from pathlib import Path
from pykai.reservation import amdsmi
root = Path(sys.argv[1])
print(*amdsmi.visible_devices(root / "dev", root / "sys"))
(root / "dev" / "dri" / "renderD129").touch()
print(*amdsmi.visible_devices(root / "dev", root / "sys"))
"""


def test_of_amds_gpus_those_with_a_render_node_are_the_containers(tmp_path: Path) -> None:
    nodes = tmp_path / "dev" / "dri"
    nodes.mkdir(parents=True)
    for name, address in (("renderD128", "0000:c1:00.0"), ("renderD129", "0001:2a:1f.7")):
        device, node = tmp_path / "sys" / "devices" / address, tmp_path / "sys" / "class" / "drm" / name
        device.mkdir(parents=True)
        node.mkdir(parents=True)
        (node / "device").symlink_to(device)

    command = [sys.executable, "-c", ASKING, str(tmp_path)]
    done = subprocess.run(command, env=with_driver("AMD", TWO_OF_AMD), check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["first second", "second"]
