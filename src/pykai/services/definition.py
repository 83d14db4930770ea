"""What the table of services says about one of them.

Flags and factories are named as `module:attribute` and imported when they are used, so that listing services costs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pykai.services.rights import RoleRule, RuleSource

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from pykai.kube.flags import Flag, FlagProblem
    from pykai.kube.runtime import Runtime, Service

    #: makes a service from the flags of its command line; raises `OptionError`
    ServiceFactory = Callable[[Runtime, Mapping[str, str], CollectorRegistry], Sequence[Service]]

#: pages that `kai run` serves at the addresses of a service
RUNNER_PATHS = ("/metrics", "/healthz", "/readyz")


class ServicePort(NamedTuple):
    """A place where a service listens."""

    #: of the port in a Service
    name: str
    #: the flag that says where
    flag: str
    paths: tuple[str, ...] = RUNNER_PATHS
    #: the service listens itself; otherwise `kai run` does
    own: bool = False


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    """One service."""

    #: `kai run NAME`
    name: str
    #: `module:attribute` of its table of flags, and of its factory
    flags_location: str
    factory_location: str
    #: its page in docs
    page: str
    ports: tuple[ServicePort, ...] = ()
    #: its ServiceAccount; empty: it is not installed into clusters
    account: str = ""
    rights: tuple[RoleRule | RuleSource, ...] = ()
    #: rights that a version of Kubernetes after the one tested asks for
    future_rules: tuple[RoleRule, ...] = ()
    #: rights that an administrator may give it besides, for one of its features: name of the role -> rights
    optional_roles: Mapping[str, RuleSource] = field(default_factory=dict)
    #: `module:attribute` of what reads all of its flags, where they must also fit together; raises `OptionError`
    reader_location: str = ""
    #: name of the lease that `kai run` takes for it; empty where the service takes its own, or none
    lease: str = ""
    #: whether `--leader-elect` has an effect
    elects_leader: bool = True
    #: part of `kai run all`
    in_all: bool = False

    def flags(self) -> tuple[Flag, ...]:
        """Its table of flags."""
        return cast("tuple[Flag, ...]", _load(self.flags_location))

    def all_flags(self) -> dict[str, Flag]:
        """By name, with those that `kai run` reads for every service."""
        # Imported here, as flags are: listing services costs nothing.
        from pykai.kube.flags import COMMON_FLAGS

        return {flag.name: flag for flag in (*COMMON_FLAGS, *self.flags())}

    def make(self, runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> Sequence[Service]:
        """The service as its flags ask for; raises `OptionError`."""
        factory = cast("ServiceFactory", _load(self.factory_location))
        return factory(runtime, given, registry)

    def problems(self, given: Mapping[str, str]) -> list[FlagProblem]:
        """Why it would not start with these flags, as far as they tell; raises `OptionError` where they do not fit
        together."""
        from pykai.kube.flags import read_flags

        reading = read_flags(self.all_flags().values(), given)
        if self.reader_location and not reading.problems:
            names = {flag.name for flag in self.flags()}
            _load(self.reader_location)({name: value for name, value in given.items() if name in names})
        return reading.problems

    def flags_without_effect(self) -> set[str]:
        """The flags that are accepted and do nothing."""
        unused = {flag.name for flag in self.flags() if flag.no_effect}
        return unused if self.elects_leader else unused | {"leader-elect", "namespace"}

    @property
    def rules(self) -> tuple[RoleRule, ...]:
        """The rules of its role."""
        rules: list[RoleRule] = []
        for right in self.rights:
            rules += (right,) if isinstance(right, RoleRule) else right()
        return tuple(rules)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The flags that say where `kai run` serves metrics and health."""
        return tuple(port.flag for port in self.ports if not port.own)


def _load(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return getattr(import_module(module), attribute)
