"""The binder as a process: leadership, bad input, stopping."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.kube.resources import LEASES
from tests.services.binder.lab import lab

ELECTED = replace(BinderOptions(), leader_elect=True)


async def test_only_the_leader_works_a_standby_is_warm_and_the_lease_is_given_back() -> None:
    async with lab() as it:
        first = await it.binder(ELECTED)
        await it.request(await it.pod("a"))
        await it.until_phase("Succeeded", "a")
        second = await it.binder(ELECTED)
        await second.caches.synced()
        assert second.service.ready()
        await it.request(await it.pod("b"))
        await it.until_phase("Succeeded", "b")
        assert second.count("bind_attempts_total") == 0
        await first.end()
        await second.end()
        lease = await it.client.get_raw(LEASES, names.BINDER_LEASE, names.DEFAULT_NAMESPACE)
        assert not lease["spec"].get("holderIdentity")


async def test_a_request_that_cannot_be_read_gets_an_event_and_others_are_served() -> None:
    async with lab() as it, it.working() as binder:
        # As it could come from a server whose schema is older.
        binder.transport.garble = lambda chunk: chunk.replace(b'"podName":"bad"', b'"podName":5')
        await binder.caches.synced()
        await it.request(await it.pod("bad"))
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        await binder.service.recorder.flush()
        (event,) = await it.events(names.EVENT_INVALID_BIND_REQUEST)
        assert "podName" in event["message"]


async def test_a_binder_that_was_told_to_stop_before_it_began_ends() -> None:
    async with lab() as it:
        binder = await it.binder()
        async with asyncio.timeout(5):
            await binder.end()
        assert binder.service.idle()
