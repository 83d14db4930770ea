"""Whether what a Config or SchedulingShard says can work, before any of it is carried out.

A service that cannot read its command line ends, so every generated one is read with the service's own flags; the
configuration file of a scheduler likewise.  Numbers that only the API server would read are checked by the names of
their fields.

Statements: install:refusals; operations:O-49, O-54.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pykai.api.installation import ContainerResources, WebhookSwitch
from pykai.api.meta import Wire
from pykai.api.quantity import QuantityError, nano_value
from pykai.kube.flags import OptionError, bounded_int, parse_command_line, read_count, read_positive
from pykai.operator.desired.refusals import LeftOut, Refused
from pykai.operator.desired.settings import Settings, part
from pykai.services.table import SERVICES

_VALIDATING: Final = "validating-kai-admission"
_MUTATING: Final = "mutating-kai-admission"
_QUEUE_PREFIX: Final = "kai-queue-validation-"
_GROUP_PREFIX: Final = "kai-podgroup-validation-"


def check_config(settings: Settings) -> None:
    """Raise `Refused` for what no service would survive, or no role allows."""
    _check_names(settings)
    for path, value, read in _numbers(settings.spec, "spec"):
        try:
            read(str(value))
        except ValueError as error:
            raise Refused(path, f"{value!r}: {error}") from None


def check_command_line(service: str, arguments: Sequence[str], section: str, fields: Mapping[str, str]) -> None:
    """Raise `Refused` for a command line with which a service would not start.

    `fields`: flag -> the field of a section of a Config that it comes from; those of the whole Config begin with a dot.
    """
    try:
        problems = SERVICES[service].problems(parse_command_line(arguments))
    except OptionError as error:
        # What does not fit together is named in the sentence.
        flag, _, text = str(error).partition(": ")
        raise _refused(flag.lstrip("-"), text, str(error), section, fields) from None
    for each in problems:
        raise _refused(each.name, each.text, str(each), section, fields)


def _refused(flag: str, text: str, sentence: str, section: str, fields: Mapping[str, str]) -> Refused:
    """The refusal of a flag: where it comes from if that is known, else with the flag in its sentence."""
    field = fields.get(flag)
    if field is None:
        return Refused(f"spec.{section}", sentence)
    return Refused(f"spec{field}" if field.startswith(".") else f"spec.{section}.{field}", text)


def check_configuration(content: Mapping[str, Any], short_forms: Mapping[str, str]) -> list[LeftOut]:
    """What of the file of a scheduler it would skip; raises `Refused` for what would end it.

    Plugins of third parties are for the scheduler to judge, as only its image may have them.
    `short_forms`: argument of a plugin -> the field of a shard that it comes from.
    """
    # Imported here: rendering the chart needs no engine.
    from pykai.core.plugins import plugin_names
    from pykai.scheduler.config.configuration import read_configuration

    known = plugin_names()
    (tier,) = content["tiers"]
    plugins = [each for each in tier["plugins"] if each["name"] in known]
    # A name may have a comma in it, and is several names then.
    actions = [each.strip() for each in content["actions"].split(",")]
    read = read_configuration({**content, "tiers": [{"plugins": plugins}]})
    left_out = []
    for problem in read.problems:
        place = _shard_path(problem.field, actions, [each["name"] for each in plugins])
        path = f"spec.{short_forms.get(place, place)}"
        if problem in read.errors:
            raise Refused(path, problem.text)
        if not path.startswith(_SKIPPED):
            # What the scheduler would do about it, behind the last semicolon, does not come to pass.
            raise Refused(path, problem.text.rpartition("; ")[0] or problem.text)
        left_out.append(LeftOut(path, problem.text))
    return left_out


#: below these the scheduler skips what it does not know, as KAI's does (cycle:CYC-3, queues:Q-308)
_SKIPPED: Final = (
    "spec.plugins.",
    "spec.scenarioSearchBudgets.maxGeneratorSearchDuration.",
    "spec.usageDBConfig.usageParams.extraParams",
)
_ACTION: Final = re.compile(r"actions\[(\d+)\]")
_PLUGIN: Final = re.compile(r"tiers\[0\]\.plugins\[(\d+)\]")


def _shard_path(field: str, actions: Sequence[str], plugins: Sequence[str]) -> str:
    """The field of the spec of a SchedulingShard that stands at a place of the file."""
    field = _ACTION.sub(lambda found: f"actions.{actions[int(found[1])]}", field)
    return _PLUGIN.sub(lambda found: f"plugins.{plugins[int(found[1])]}", field)


def _check_names(settings: Settings) -> None:
    """Raise `Refused` for a registration that our roles do not name (operations:O-54).

    The operator could not write it, and the service behind it could not give it a certificate.
    """
    admission = settings.admission
    queues = part(settings.queue_controller.webhooks, WebhookSwitch)
    groups = part(settings.pod_group_controller.webhooks, WebhookSwitch)
    prefix = "webhooks.webhookConfigurationNamePrefix"
    for path, given, known in (
        (
            "admission.validatingWebhookConfigurationName",
            admission.validating_webhook_configuration_name,
            _VALIDATING,
        ),
        ("admission.mutatingWebhookConfigurationName", admission.mutating_webhook_configuration_name, _MUTATING),
        (f"queueController.{prefix}", queues.webhook_configuration_name_prefix, _QUEUE_PREFIX),
        (f"podGroupController.{prefix}", groups.webhook_configuration_name_prefix, _GROUP_PREFIX),
    ):
        if given is not None and given != known:
            text = f"{given!r}: the roles of this installation know {known!r} only; leave the field out"
            raise Refused(f"spec.{path}", text)


def _read_quantity(text: str) -> int:
    try:
        nanos = nano_value(text)
    except QuantityError as error:
        raise ValueError(f"expected a quantity such as 500m or 2Gi ({error})") from None
    if nanos < 0:
        raise ValueError("expected a quantity that is not negative")
    return nanos


_read_port: Final = bounded_int(1, 65535)
Reader = Callable[[str], Any]
#: fields whose names say what they hold, in every part of a Config
_READERS: Final[Mapping[str, Reader]] = {
    "replicas": read_count,
    "replicaCount": read_count,
    "maxUnavailable": read_count,
    "qps": read_positive,
    "burst": read_positive,
    "volumeBindingTimeoutSeconds": read_positive,
    "storageSize": _read_quantity,
    "port": _read_port,
    "targetPort": _read_port,
    "probePort": _read_port,
    "metricsPort": _read_port,
}


def _numbers(spec: Wire, path: str) -> Iterator[tuple[str, Any, Reader]]:
    """Path, value and reader of every number that is given."""
    for field in msgspec.structs.fields(type(spec)):
        here, value = f"{path}.{field.encode_name}", getattr(spec, field.name)
        if value is None:
            continue
        if isinstance(spec, ContainerResources) and isinstance(value, dict):
            for name, quantity in value.items():
                yield f"{here}.{name}", quantity, _read_quantity
        elif isinstance(value, Wire):
            yield from _numbers(value, here)
        elif field.encode_name in _READERS:
            yield here, value, _READERS[field.encode_name]
