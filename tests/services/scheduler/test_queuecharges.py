"""Which queue pays for pods whose PodGroup names a queue that is closed to their namespace (access:charges)."""

from __future__ import annotations

import pytest

from pykai.api import names
from tests.services.scheduler.test_intake import Feed

OPEN = "vision,default"
CLOSED = "vision"


class Charges(Feed):
    """Queue `own` is open, `theirs` has a list, and so has `default-queue` if a test says so; pods ask for one CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.node("a")
        self.queue("own")
        self.queue("theirs", CLOSED)
        self.queue(names.DEFAULT_QUEUE)

    def start(self) -> None:
        """The lists are complete."""
        self.intake.pod_intake.charge_ungrouped()

    def queue(self, name: str, allowed: str = "", *, selector: str = "", parent: str = "") -> None:
        """A queue, with a list if one is given."""
        lists = {names.ALLOWED_NAMESPACES_ANNOTATION: allowed, names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: selector}
        annotations = {key: text for key, text in lists.items() if text}
        meta = {"name": name, "namespace": "", "annotations": annotations}
        self.say("MODIFIED", "Queue", {"metadata": meta, "spec": {"parentQueue": parent}})

    def namespace(self, **labels: str) -> None:
        """The labels of namespace `default`."""
        self.say("MODIFIED", "Namespace", {"metadata": {"name": "default", "namespace": "", "labels": labels}})

    def pod_group(self, name: str, queue: str, *, uid: str = "") -> None:
        """A PodGroup."""
        meta = {"name": name, "uid": uid or name}
        self.say("MODIFIED", "PodGroup", {"metadata": meta, "spec": {"queue": queue, "minMember": 1}})

    def running(self, name: str, group: str, *, scheduler: str = names.SCHEDULER_NAME, node: str = "a") -> None:
        """A pod that runs, or waits if it has no node."""
        meta = {"name": name, "annotations": {names.POD_GROUP_ANNOTATION: group}}
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": scheduler, "nodeName": node, "containers": [container]}
        status = {"phase": "Running" if node else "Pending"}
        self.say("MODIFIED", "Pod", {"metadata": meta, "spec": spec, "status": status})

    @property
    def charged(self) -> dict[str, int]:
        """Queue -> CPUs that it is charged for."""
        self.digest()
        queues = self.intake.tables.snapshot(0).group_index.queues
        sums = {name: sum(cpu for cpu, _, _ in of.allocated.values()) for name, of in queues.items()}
        return {name: cpu // 1000 for name, cpu in sums.items() if cpu}


@pytest.fixture
async def life() -> Charges:
    made = Charges()
    made.pod_group("mine", "own")
    made.running("p", "mine")
    made.start()
    assert made.charged == {"own": 1}
    return made


async def test_a_new_group_in_a_closed_queue_charges_nothing_to_it(life: Charges) -> None:
    """access:charges: pods that run elsewhere are put into the group."""
    life.pod_group("trap", "theirs")
    life.running("p", "trap")
    assert life.charged == {names.DEFAULT_QUEUE: 1}
    life.queue("theirs", OPEN)
    assert life.charged == {"theirs": 1}


async def test_the_group_may_come_after_its_pods(life: Charges) -> None:
    """access:charges"""
    life.running("p", "trap")
    life.pod_group("trap", "theirs")
    assert life.charged == {names.DEFAULT_QUEUE: 1}


async def test_a_group_that_moves_to_a_closed_queue_stays_charged_to_its_last(life: Charges) -> None:
    """access:charges"""
    life.pod_group("mine", "theirs")
    assert life.charged == {"own": 1}


async def test_a_group_made_again_under_its_name_charges_nothing(life: Charges) -> None:
    """access:charges: only the group that was charged there stays charged there."""
    life.queue("theirs", OPEN)
    life.pod_group("g", "theirs")
    life.running("p", "g")
    life.queue("theirs", CLOSED)
    assert life.charged == {"theirs": 1}
    life.pod_group("g", "theirs", uid="another")
    assert life.charged == {names.DEFAULT_QUEUE: 1}


async def test_pods_of_other_schedulers_are_not_charged_to_a_closed_queue_either(life: Charges) -> None:
    """access:charges"""
    life.pod_group("trap", "theirs")
    life.running("q", "trap", scheduler="default-scheduler")
    life.running("r", "none", scheduler="default-scheduler")
    assert life.charged == {"own": 1, names.DEFAULT_QUEUE: 1}
    life.queue("theirs", OPEN)
    assert life.charged == {"own": 1, "theirs": 1}


async def test_pods_that_come_to_a_group_after_access_was_withdrawn_are_not_charged_there(life: Charges) -> None:
    """access:charges, access:withdrawn: those that were there stay charged."""
    life.queue("theirs", OPEN)
    life.pod_group("g", "theirs")
    life.running("first", "g")
    life.queue("theirs", CLOSED)
    life.running("p", "g")
    assert life.charged == {"theirs": 1, names.DEFAULT_QUEUE: 1}
    # Nor where the group then names a queue that does not exist, and its pods stay in its last one.
    life.pod_group("g", "absent")
    assert life.charged == {"theirs": 1, names.DEFAULT_QUEUE: 1}
    life.pod_group("g", "theirs")
    life.queue("theirs", OPEN)
    assert life.charged == {"theirs": 2}
    life.queue("theirs", CLOSED)
    assert life.charged == {"theirs": 2}


async def test_labels_of_the_namespace_open_a_queue_for_pods_that_run(life: Charges) -> None:
    """access:charges, access:lists"""
    life.queue("theirs", selector="team=red")
    life.pod_group("trap", "theirs")
    life.running("p", "trap")
    assert life.charged == {names.DEFAULT_QUEUE: 1}
    life.namespace(team="red")
    assert life.charged == {"theirs": 1}
    life.namespace(team="blue")
    assert life.charged == {"theirs": 1}


async def test_a_queue_is_opened_by_another_parent(life: Charges) -> None:
    """access:charges, access:ancestors"""
    life.queue("department", CLOSED)
    life.queue("theirs", parent="department")
    life.pod_group("trap", "theirs")
    life.running("p", "trap")
    assert life.charged == {names.DEFAULT_QUEUE: 1}
    life.queue("theirs")
    assert life.charged == {"theirs": 1}


async def test_a_closed_default_queue_is_not_charged(life: Charges) -> None:
    """access:charges: the pod is seen, and holds its node, in no queue."""
    life.queue(names.DEFAULT_QUEUE, CLOSED)
    life.running("alone", "none")
    assert life.charged == {"own": 1, "": 1}
    life.queue(names.DEFAULT_QUEUE, OPEN)
    assert life.charged == {"own": 1, names.DEFAULT_QUEUE: 1}


async def test_after_a_restart_only_groups_that_run_are_charged_where_access_was_withdrawn() -> None:
    """access:charges, access:withdrawn"""
    life = Charges()
    life.pod_group("runs", "theirs")
    life.pod_group("waits", "theirs")
    life.running("p", "runs")
    life.running("q", "waits", node="")
    life.start()
    assert life.charged == {"theirs": 1}
    life.running("q", "waits")
    assert life.charged == {"theirs": 1, names.DEFAULT_QUEUE: 1}
    # Leading again is no restart.
    life.start()
    assert life.charged == {"theirs": 1, names.DEFAULT_QUEUE: 1}
