"""README.md matches the program, as far as a test can tell: commands, links, the story, and what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from pykai.lab import story as scenario
from pykai.operator.install import installation

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
MISSING = README.split("## What is missing")[1].split("\n## ")[0]


def kinds_installed() -> set[str]:
    """Kinds that the installation defines."""
    return {item["spec"]["names"]["kind"] for item in installation() if item["kind"] == "CustomResourceDefinition"}


def test_the_custom_resources_that_exist_are_named() -> None:
    intro = README.split("```")[0]
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", intro))
    assert named == kinds_installed()


def test_what_is_said_to_be_deployed_by_hand_is_not_installed() -> None:
    assert not [item for item in installation() if item["kind"] in ("Deployment", "DaemonSet")]


def test_every_link_resolves() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / target).exists(), target
    for anchor in re.findall(r"\]\(#([^)]+)\)", README):
        assert f"\n## {anchor.replace('-', ' ').capitalize()}\n" in README


def test_every_command_exists() -> None:
    block = README.split("## Use it")[1].split("```")[1]
    commands = sorted(set(re.findall(r"kai ([a-z]+)", block)))
    listed = subprocess.run(
        [sys.executable, "-m", "pykai", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert len(commands) == 14
    for command in commands:
        assert re.search(rf"^  {command} ", listed, re.MULTILINE), command


def test_every_program_that_measures_exists() -> None:
    programs = re.findall(r"python (bench/\w+\.py)", PERFORMANCE)
    modules = re.findall(r"python -m (bench\.\w+)", PERFORMANCE)
    assert programs
    assert modules
    for path in (*programs, *(f"{module.replace('.', '/')}.py" for module in modules)):
        assert (ROOT / path).is_file(), path
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)", README + PERFORMANCE, re.MULTILINE)):
        name = "".join(target)
        assert re.search(rf"^{name}:", targets, re.MULTILINE), name


def test_the_story_matches_the_text() -> None:
    """100 GPUs, 20 services, 10 jobs, four teams."""
    story = yaml.safe_load((Path(scenario.__file__).parent / "scenarios" / "lab.yaml").read_text(encoding="utf-8"))
    assert sum(each.get("count", 1) * each["gpus"] for each in story["machines"]) == 100
    assert sum(len(step.get("services", ())) for step in story["steps"]) == 20
    assert sum(len(step.get("jobs", ())) for step in story["steps"]) == 10
    parents = {queue.get("parent") for queue in story["queues"]}
    assert len([queue for queue in story["queues"] if queue["name"] not in parents]) == 4
    assert "100 simulated GPUs" in README
    assert "Twenty inference services and ten training jobs of four teams" in README


def test_the_figures_are_those_of_the_page_about_performance() -> None:
    rows = re.findall(r"^\| .* \| ([\d.]+) s \| (?:([\d.]+) s )?\|$", README, re.MULTILINE)
    assert len(rows) == 4
    for ours, theirs in rows:
        assert f"| {ours} |" in PERFORMANCE
        assert not theirs or re.search(rf"\b{re.escape(theirs)}\b", PERFORMANCE)


def test_the_length_of_the_example_plugin_is_right() -> None:
    source = (ROOT / "examples" / "plugins" / "quiet_nodes" / "quiet_nodes.py").read_text(encoding="utf-8")
    assert f"an example of {len(source.splitlines())} lines" in README
