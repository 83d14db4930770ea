"""Claims in use: their devices, and how many tasks use them.

A claim keeps its devices as long as it has a user.
"""

from __future__ import annotations

from typing import NamedTuple

from pykai.api.resource import AllocationResult
from pykai.core.ledgers.claims.allocator import ClaimAllocation
from pykai.core.ledgers.claims.holdings import NOT_HELD, HoldState
from pykai.core.ledgers.claims.service import NodeAmount
from pykai.core.model.axes import BoolArray
from pykai.core.model.extendedresources import EXTENDED_CLAIM_NAME
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task


class HeldClaim(NamedTuple):
    """A claim and the devices it has."""

    #: its name in the pod, or EXTENDED_CLAIM_NAME
    name: str
    key: str
    allocation: ClaimAllocation


HeldEntries = tuple[HeldClaim | NodeAmount, ...]


class ClaimInUse:
    """A claim in use."""

    __slots__ = (
        "allocation",
        "first_user",
        "initial",
        "reachable",
        "result",
        "unknown_users",
        "unplaced_users",
        "users",
    )

    def __init__(self) -> None:
        self.allocation: ClaimAllocation | None = None
        #: the allocation as the API server or a BindRequest has it, where it comes from there
        self.result: AllocationResult | None = None
        #: otherwise its first user: shape, node row, name of the claim in the pod
        self.first_user: tuple[Shape, int, str] | None = None
        #: allocation and wire form when the cycle began, for undo
        self.initial: tuple[ClaimAllocation, AllocationResult] | None = None
        #: users by holding
        self.users = [0, 0, 0]
        #: uids it is reserved for that are not among its users here
        self.unknown_users: set[str] = set()
        #: users it is reserved for that are on no node
        self.unplaced_users = 0
        #: [node] from where its devices can be reached, () = not computed yet, None = from all
        self.reachable: BoolArray | tuple[()] | None = ()

    @property
    def hold_state(self) -> HoldState:
        """How it holds its devices."""
        if self.allocation is None:
            return NOT_HELD
        live, releasing, pipelined = self.users
        if live or (self.unknown_users and self.initial is not None):
            return (1, 0, 0)
        return (0, 1 if releasing else 0, 1 if pipelined else 0)

    def assign(self, allocation: ClaimAllocation, first_user: tuple[Shape, int, str]) -> None:
        """Give it devices: those it had before, or others."""
        self.allocation, self.reachable = allocation, ()
        if self.initial is not None and self.initial[0] == allocation:
            self.result = self.initial[1]
        else:
            self.first_user = first_user

    def release(self) -> None:
        """Release its devices; a claim without users has none (gpu:D-11)."""
        self.allocation, self.result, self.first_user, self.reachable = None, None, None, ()


def entries_of(allocation: object) -> HeldEntries:
    """The entries of what the ledger granted."""
    assert isinstance(allocation, tuple)
    return allocation


def own_keys(task: Task) -> tuple[str, ...]:
    """Keys of the claims of a task; a claim that does not exist yet gets a key of the task."""
    return tuple(key or f"{task.key}#{number}" for number, key in enumerate(task.claim_keys))


def extended_claim_key(task: Task) -> str:
    """The key of the claim behind the extended resources of a task, until it exists."""
    return f"{task.key}#{EXTENDED_CLAIM_NAME}"
