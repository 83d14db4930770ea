"""The cluster as tables, kept up to date object by object.

`Tables.apply` takes one object that changed, `Tables.remove` one that is gone; both cost the same however large the
cluster is.  Objects may come in any order: the tables depend on the set of current objects, never on their history (a
property test compares both).  `Tables.snapshot` gives the view a cycle works on.

Nodes have facts and figures (`nodecolumns.py`), groups their tasks and sums (`grouptable.py`), tasks their indexes
(`taskindex.py`).  An object that says what is known already changes nothing, not even a change token.  Objects of
another shard (cycle:SNP-3) are treated as absent.  Fields that cannot be read are kept as problems of their object and
do not affect other objects.

Statements: increments.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.api.core import ConfigMap, Namespace, Node, Pod
from pykai.api.decode import WireObject
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.core.cluster.bindrequests import BindRequests
from pykai.core.cluster.changetokens import ChangeTracker
from pykai.core.cluster.claims.index import CLAIM_KINDS, ClaimIndex, ClaimObject
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.cluster.disruptionbudgets import BudgetIndex, DisruptionBudget, read_budget
from pykai.core.cluster.grouptable import GroupTable
from pykai.core.cluster.namedobjects import NamedObjects
from pykai.core.cluster.nodecolumns import NodeColumns
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.objectproblems import ObjectProblems
from pykai.core.cluster.priorities import unknown_class_problems
from pykai.core.cluster.queueaccess import QueueAccessIndex
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.storage import STORAGE_KINDS, StorageIndex, StorageObject, size_problems, subject_of
from pykai.core.cluster.taskindex import TaskIndex
from pykai.core.model.axes import Axes
from pykai.core.model.groups import Group, read_group
from pykai.core.model.nodes import NodeFacts, read_node
from pykai.core.model.problems import Problem
from pykai.core.model.queueaccess import QueueAccess, access_texts, read_queue_access
from pykai.core.model.queuetree import QueueTree, build_tree
from pykai.core.model.shapes import RequestError, ResolvedReferences, ShapeRegister
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task, has_ended, is_equivalent_pod, read_task, same_facts
from pykai.core.model.vectors import Vectors
from pykai.core.report.decisions import FreeRoomOnly

#: Shapes kept beyond twice those in use before unused ones are dropped.
_SHAPE_SLACK = 4096


class Tables:
    """The model of a cluster.  One owner applies changes; a snapshot is valid until the next change (cycle:PERF-1)."""

    def __init__(self, shard: Shard | None = None, objects: Iterable[WireObject] = ()) -> None:
        self.shard = shard or Shard()
        self.axes = Axes()
        self.shapes = ShapeRegister()
        self.vectors = Vectors(self.axes)
        self._node_facts: dict[str, NodeFacts] = {}
        self.queues: dict[str, Queue] = {}
        self._changes = ChangeTracker()
        self._problems = ObjectProblems(self._changes)
        self.named = NamedObjects(self._problems)
        self._access = QueueAccessIndex(self.queues, self.named.namespaces)
        self._group_table = GroupTable(self.vectors, self._node_facts, self.shard.stuck_after_ns, self._access)
        self.groups = self._group_table.entries
        self.storage = StorageIndex()
        self.claims = ClaimIndex(self.shard.queue_label)
        self.disruption_budgets = BudgetIndex()
        self._unreadable_shape = self.shapes.unreadable_shape()
        self._max_shapes = _SHAPE_SLACK
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, Task] = {}
        self._assumed_statuses: dict[str, TaskStatus] = {}
        #: groups that may use free resources only
        self._free_room_only: dict[str, FreeRoomOnly] = {}
        self._bind_requests = BindRequests()
        self._task_index = TaskIndex()
        #: node -> GPUs that its ResourceSlices offer
        self._dra_gpus: dict[str, int] = {}
        #: the devices these were counted from
        self._counted_inventory: Inventory | None = None
        self._columns = NodeColumns(self.axes, self.vectors)
        self._node_table: NodeTable | None = None
        self._tree: QueueTree | None = None
        for item in objects:
            self.apply(item)

    def apply(self, item: WireObject) -> None:
        """Add or replace an object.

        Kinds that often change in ways that do not matter here (heartbeats, conditions, figures in a status) are
        compared with what is known; any other object counts as a change.
        """
        if isinstance(item, Pod):
            self._apply_pod(item)
        elif isinstance(item, Node):
            self._apply_node(item)
        elif isinstance(item, PodGroup):
            self._apply_group(item)
        elif isinstance(item, Queue):
            self._apply_queue(item)
        elif isinstance(item, BindRequest):
            for pod_key in sorted(self._bind_requests.apply(item)):
                self._rebuild_task(pod_key)
        elif isinstance(item, ConfigMap):
            if self.named.add_config_map(object_key(item.metadata.namespace, item.metadata.name)):
                self._changes.rest_changed()
        elif isinstance(item, Namespace):
            if self.named.apply_namespace(item):
                self._changes.rest_changed()
                self._access.expire()
        elif isinstance(item, PodDisruptionBudget):
            budget = read_budget(item)
            self._set_disruption_budget(item.metadata.namespace, budget.key, budget)
        else:
            self._changes.rest_changed()
            self._apply_rare_kind(item)

    def _apply_rare_kind(self, item: WireObject) -> None:
        """Apply an object of a kind that seldom changes."""
        if isinstance(item, StorageObject):
            self._problems.set(
                subject_of(type(item).__name__, item.metadata.namespace, item.metadata.name), size_problems(item)
            )
            self._rebuild_volume_users(self.storage.apply(item))
        elif isinstance(item, ClaimObject):
            self._rebuild_claim_users(self.claims.apply(item))
        else:
            self.named.apply(item)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object; unknown ones are ignored."""
        key = object_key(namespace, name)
        if kind == "Pod":
            self._remove_pod(key)
        elif kind == "Node":
            self._remove_node(name)
        elif kind == "PodGroup":
            self._set_group(key, None, in_other_shard=False)
            self._problems.set(f"PodGroup/{key}", [])
        elif kind == "Queue":
            self._remove_queue(name)
        elif kind == "BindRequest":
            self._rebuild_task(self._bind_requests.forget(key))
        elif kind == "PodDisruptionBudget":
            self._set_disruption_budget(namespace, key, None)
        else:
            self._changes.rest_changed()
            self._remove_rare_kind(kind, namespace, name)

    def _remove_rare_kind(self, kind: str, namespace: str, name: str) -> None:
        if kind in STORAGE_KINDS:
            self._problems.set(subject_of(kind, namespace, name), [])
            self._rebuild_volume_users(self.storage.remove(kind, namespace, name))
        elif kind in CLAIM_KINDS:
            self._rebuild_claim_users(self.claims.remove(kind, namespace, name))
        else:
            self.named.remove(kind, namespace, name)
            if kind == "Namespace":
                self._access.expire()

    def _set_disruption_budget(self, namespace: str, key: str, budget: DisruptionBudget | None) -> None:
        if self.disruption_budgets.set(namespace, key, budget):
            # Budgets are read only together with the running work that they protect.
            self._changes.running_changed()

    def assume(self, pod_key: str, status: TaskStatus | None) -> None:
        """Hold a pod in a state its object does not show yet (an eviction under way); None ends that.

        The assumption holds for this pod only: it ends when the pod goes or another of its name comes (cycle:SNP-17).
        Nothing is assumed about unknown pods.
        """
        if status is None:
            self._assumed_statuses.pop(pod_key, None)
        elif pod_key in self._pods:
            self._assumed_statuses[pod_key] = status
        self._rebuild_task(pod_key)

    def set_free_room_only(self, group_key: str, reason: FreeRoomOnly | None) -> None:
        """Keep a group from triggering evictions; None ends that."""
        if self._free_room_only.get(group_key) == reason:
            return
        self._changes.waiting_changed()
        self._free_room_only = {key: known for key, known in self._free_room_only.items() if key != group_key}
        if reason is not None:
            self._free_room_only[group_key] = reason

    def _apply_pod(self, pod: Pod) -> None:
        key = object_key(pod.metadata.namespace, pod.metadata.name)
        before = self._pods.get(key)
        self._pods[key] = pod
        if before is not None:
            if is_equivalent_pod(before, pod):
                return
            if before.metadata.uid != pod.metadata.uid:
                self._assumed_statuses.pop(key, None)
        claim_sharers = self.storage.update_pod(key, pod)
        self.claims.update_pod(key, pod)
        self._rebuild_task(key)
        self._rebuild_volume_users(claim_sharers)

    def _rebuild_volume_users(self, keys: set[str]) -> None:
        """Rebuild the tasks of pods whose claims now resolve differently."""
        for key in sorted(keys):
            task = self._tasks.get(key)
            if task is None or task.shape.volumes != self.storage.resolve(self._pods[key]):
                self._rebuild_task(key)

    def _rebuild_claim_users(self, keys: set[str]) -> None:
        """The same for claims of devices."""
        for key in sorted(keys):
            self.claims.update_pod(key, self._pods[key])
            self._rebuild_task(key)

    def _rebuild_task(self, key: str, status_override: TaskStatus | None = None, *, overdue: bool = False) -> None:
        """Rebuild the task of a pod, with `status_override` if given; an equal task changes nothing."""
        old_task = self._tasks.get(key)
        pod = self._pods.get(key)
        if pod is None:
            if old_task is not None:
                del self._tasks[key]
                self._detach(old_task)
            return
        problems: list[Problem] = []
        subject = f"Pod/{key}"
        bind_request = self._bind_requests.effective(key, pod, self._node_facts)
        pod_claims = self.claims.resolve(pod, is_placed=bool(pod.spec.node_name) or bind_request is not None)
        try:
            shape = self.shapes.shape_of(
                pod,
                ResolvedReferences(
                    self.storage.resolve(pod), pod_claims.claims, pod_claims.dra_backed_spec, pod_claims.dra_backed
                ),
            )
        except RequestError as error:
            problems.append(Problem(subject, "", f"{error}; the pod waits until this is fixed"))
            shape = self._unreadable_shape
        task = read_task(
            pod,
            shape,
            bind_request,
            self._assumed_status(key, pod) if status_override is None else status_override,
            self.shard.scheduler_name,
            self.shard.reservation_app,
            problems.append,
            pod_claims.keys if shape.claims else (),
            pod_claims.extended_key,
            overdue=overdue,
        )
        if old_task is not None and same_facts(old_task, task) and problems == self._problems.of(subject):
            return
        self._problems.set(subject, problems)
        if old_task is not None:
            self._detach(old_task)
        self._tasks[key] = task
        self._attach(task)

    def _assumed_status(self, key: str, pod: Pod) -> TaskStatus | None:
        """The status assumed for a pod; an assumed eviction ends once the object shows that the pod terminates."""
        assumed = self._assumed_statuses.get(key)
        if assumed is TaskStatus.RELEASING and (pod.metadata.deletion_timestamp is not None or has_ended(pod)):
            return None
        return assumed

    def _remove_pod(self, key: str) -> None:
        self._assumed_statuses.pop(key, None)
        self._problems.set(f"Pod/{key}", [])
        if self._pods.pop(key, None) is not None:
            claim_sharers = self.storage.update_pod(key, None)
            self.claims.update_pod(key, None)
            self._rebuild_task(key)
            self._rebuild_volume_users(claim_sharers)

    def _attach(self, task: Task) -> None:
        self._changes.task_changed(task)
        if task.group_key:
            self._group_table.add_task(task)
        self._task_index.add(task)
        self._charge(task, 1)
        if self.disruption_budgets:
            self.disruption_budgets.count(task, 1)

    def _detach(self, task: Task) -> None:
        self._changes.task_changed(task)
        if task.group_key:
            self._group_table.remove_task(task)
        self._charge(task, -1)
        self._task_index.remove(task)
        if self.disruption_budgets:
            self.disruption_budgets.count(task, -1)

    def _apply_node(self, node: Node) -> None:
        name = node.metadata.name
        if not self.shard.covers_node(node.metadata):
            self._remove_node(name)
            return
        problems: list[Problem] = []
        facts = read_node(node, self.shard.mig_label, problems.append).with_dra_gpus(self._dra_gpus.get(name, 0))
        self._problems.set(f"Node/{name}", problems)
        if self._node_facts.get(name) != facts:
            self._replace_node(name, facts)

    def _remove_node(self, name: str) -> None:
        self._problems.set(f"Node/{name}", [])
        if name in self._node_facts:
            self._replace_node(name, None)

    def _replace_node(self, name: str, facts: NodeFacts | None) -> None:
        """Set or remove a node; tasks on it or being bound to it are rebuilt, because their cost may change."""
        self._changes.rest_changed()
        affected_pods = sorted({*self._task_index.by_node.get(name, ()), *self._bind_requests.pods_binding_to(name)})
        for key in affected_pods:
            old_task = self._tasks.pop(key, None)
            if old_task is not None:
                self._detach(old_task)
        self._columns.remove_node(name)
        self._node_facts.pop(name, None)
        self._node_table = None
        if facts is not None:
            self._node_facts[name] = facts
            self._columns.add_node(facts)
        for key in affected_pods:
            self._rebuild_task(key)

    def _charge(self, task: Task, sign: int) -> None:
        """Add a task to or subtract it from its node, if the node is known."""
        facts = self._node_facts.get(task.node)
        if facts is not None and task.holds_node:
            self._columns.charge(facts, task, sign)

    def _apply_group(self, podgroup: PodGroup) -> None:
        key = object_key(podgroup.metadata.namespace, podgroup.metadata.name)
        problems: list[Problem] = []
        group = None
        if self.shard.covers(podgroup.metadata):
            group = read_group(podgroup, self.shard.node_pool_key, problems.append)
        self._problems.set(f"PodGroup/{key}", problems)
        self._set_group(key, group, in_other_shard=group is None)

    def _set_group(self, key: str, group: Group | None, *, in_other_shard: bool) -> None:
        if self._group_table.set_group(key, group, in_other_shard=in_other_shard):
            self._changes.running_changed()

    def _apply_queue(self, queue: Queue) -> None:
        name = queue.metadata.name
        old_queue = self.queues.get(name)
        if not self.shard.covers(queue.metadata):
            self._remove_queue(name)
            return
        self.queues[name] = queue
        created = queue.metadata.creation_timestamp
        if old_queue is None or old_queue.spec != queue.spec or old_queue.metadata.creation_timestamp != created:
            self._changes.rest_changed()
            self._tree = None
            self._access.expire()
        texts = access_texts(queue.metadata.annotations)
        if texts != (access_texts(old_queue.metadata.annotations) if old_queue is not None else (None, None)):
            self._set_queue_access(name, read_queue_access(queue.metadata.annotations))

    def _set_queue_access(self, name: str, access: QueueAccess | None) -> None:
        if self._access.set_list(name, access):
            self._changes.rest_changed()
        problems: list[Problem] = []
        if access is not None and access.fault:
            field = f"metadata.annotations[{access.broken_annotation}]"
            text = f"{access.fault}; no workload of this queue or a queue below it starts until this is fixed"
            problems = [Problem(f"Queue/{name}", field, text)]
        self._problems.set(f"Queue/{name}", problems)

    def _remove_queue(self, name: str) -> None:
        if self.queues.pop(name, None) is not None:
            self._changes.rest_changed()
            self._tree = None
            self._access.expire()
            self._set_queue_access(name, None)

    def stale_bind_requests(self) -> list[str]:
        """Keys of BindRequests to delete (cycle:SNP-8)."""
        return self._bind_requests.stale(self._node_facts, self.shard.covers)

    def _update_stuck_tasks(self, now_ns: int) -> None:
        """Mark overdue tasks as stuck: they hold their node and do not count as releasing it (cycle:TSK-3)."""
        for key, task in list(self._task_index.terminating.items()):
            assert task.deletion_ns is not None
            overdue = now_ns - task.deletion_ns > self.shard.stuck_after_ns
            # A task that never ran is never stuck, and still counts as releasing.
            expected_status = TaskStatus.STUCK_IN_RELEASING if overdue and task.running else TaskStatus.RELEASING
            if task.status is not expected_status or task.overdue != overdue:
                if self._assumed_status(key, self._pods[key]) is None:
                    self._rebuild_task(key, expected_status, overdue=overdue)

    def _current_nodes(self) -> NodeTable:
        """The nodes as a table; the GPUs of their slices are recounted when slices or nodes have changed.

        Statements: cycle:SNP-5.
        """
        if self._node_table is None:
            self._node_table = NodeTable.of(self._node_facts)
        table = self._node_table
        if not self.claims.slices and not self._dra_gpus:
            self._problems.set("ResourceSlice", [])
            self._counted_inventory = None
            return table
        inventory = self.claims.inventory(table)
        if inventory is self._counted_inventory:
            return table
        self._counted_inventory = inventory
        dra_gpus = {table.names[row]: int(count) for row, count in enumerate(inventory.gpu_capacity()) if count}
        self._problems.set(
            "ResourceSlice", [Problem("ResourceSlice", "spec.pool", str(pool)) for pool in inventory.broken_pools]
        )
        if dra_gpus != self._dra_gpus:
            before, self._dra_gpus = self._dra_gpus, dra_gpus
            for name in sorted(before.keys() | dra_gpus.keys()):
                if name in self._node_facts and before.get(name, 0) != dra_gpus.get(name, 0):
                    self._replace_node(name, self._node_facts[name].with_dra_gpus(dra_gpus.get(name, 0)))
            table = self._node_table = NodeTable.of(self._node_facts)
        return table

    def queue_tree(self) -> QueueTree:
        """The forest of queues, rebuilt only when a queue changed."""
        if self._tree is None:
            problems: list[Problem] = []
            # The synthetic parent of a flat hierarchy has no siblings, so its age is never compared with anything.
            self._tree = build_tree(
                self.queues.values(), full_hierarchy=self.shard.full_hierarchy, now_ns=0, report=problems.append
            )
            self._problems.set("Queue", problems)
        return self._tree

    def refresh_indexes(self) -> None:
        """Count what has changed and drop unused shapes; needed where no snapshots are taken."""
        if self._group_table.refresh():
            self._changes.waiting_changed()
        for namespace in self.disruption_budgets.choose():
            self._problems.set(f"PodDisruptionBudget/{namespace}", self.disruption_budgets.problems(namespace))
        if len(self.shapes.shapes) > self._max_shapes:
            used = {task.shape for task in self._tasks.values()} | {self._unreadable_shape}
            self.shapes.retain_only(used)
            self.vectors.retain_only(used)
            self._task_index.terms.retain_only(used)
            self._max_shapes = 2 * len(used) + _SHAPE_SLACK

    def snapshot(self, now_ns: int) -> Snapshot:
        """The view a cycle works on; valid until the next change of the tables."""
        # Nodes first: a changed node rebuilds its tasks.
        table = self._current_nodes()
        self._update_stuck_tasks(now_ns)
        tree = self.queue_tree()
        self.refresh_indexes()
        index, named = self._task_index, self.named
        return Snapshot(
            now_ns=now_ns,
            change_tokens=self._changes.tokens(),
            shard=self.shard,
            axes=self.axes,
            shapes=self.shapes,
            vectors=self.vectors,
            nodes=table,
            allocatable=self._columns.allocatable(table),
            columns=self._columns.planes(table),
            devices=self._columns.devices(table),
            ports=self._columns.ports(table),
            foreign_usage=self._columns.foreign_usage(table),
            tree=tree,
            group_entries=self.groups,
            group_index=self._group_table.index,
            task_records=self._tasks,
            tasks_by_node=index.by_node,
            tasks_with_affinity=index.with_affinity,
            terms=index.terms,
            tasks_with_volumes=index.with_volumes,
            tasks_with_claims=index.with_claims,
            tasks_without_group=index.without_group,
            legacy_mig_tasks=index.legacy_mig,
            held_by_queue=index.held_by_queue,
            victims=index.victims,
            priority_classes=named.priority_classes,
            topologies=named.topologies,
            numa=named.numa,
            storage=self.storage,
            claims=self.claims,
            disruption_budgets=self.disruption_budgets,
            config_maps=named.config_maps,
            namespaces=named.namespaces,
            free_room_only=self._free_room_only,
            problems=(
                *self._problems,
                *unknown_class_problems(self._group_table.index, named.priority_classes),
            ),
        )
