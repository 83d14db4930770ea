"""Usage from a Prometheus, over HTTP (queues:14.3).

`usageQueryTimeout` holds for all queries of a fetch together.  Nothing of an answer is believed unchecked: its size is
limited, and values that are no amounts count as nothing.  A password in the address is sent and never printed.
"""

from __future__ import annotations

import logging
import os
from asyncio import timeout
from collections.abc import Mapping, Sequence

import aiohttp
from yarl import URL

from pykai.api.duration import SECOND, format_go_duration
from pykai.core.queueing.usagehistory import UsageAmounts
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.usage.promql import (
    RESOURCE_NAMES,
    InstantVector,
    UsageError,
    first_value,
    read_vector,
    usage_fractions,
    usage_queries,
)

log = logging.getLogger(__name__)

#: a sample of a queue takes some hundred bytes
_MAX_ANSWER_BYTES = 16 << 20
#: answers of servers that take no POST
_GET_INSTEAD = frozenset((405, 501))


class PrometheusUsage:
    """The usage that a Prometheus reports."""

    def __init__(self, config: UsageConfig, environment: Mapping[str, str] = os.environ) -> None:
        self._config = config
        self._environment = environment
        #: what was already logged
        self._logged: set[str] = set()

    async def fetch(self, now_ns: int) -> Mapping[str, UsageAmounts]:
        """Queue -> fraction of the cluster; raises `UsageError`."""
        queries = usage_queries(self._config, now_ns)
        if queries is None:
            return {}
        address = self._address()
        shown = address.with_user(None)
        limit_ns = self._config.query_timeout_ns
        try:
            async with timeout(limit_ns / SECOND), aiohttp.ClientSession(trust_env=True) as session:
                return await self._query_all(_InstantQueries(session, address, now_ns), *queries)
        except TimeoutError:
            raise UsageError(
                f"Prometheus at {shown} did not answer within {format_go_duration(limit_ns)} (usageQueryTimeout)"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UsageError(f"Prometheus at {shown} cannot be reached: {error or type(error).__name__}") from None
        except UsageError as error:
            raise UsageError(f"Prometheus at {shown}: {error}") from None

    def _address(self) -> URL:
        config = self._config
        text = config.connection or self._environment.get(config.connection_variable, "")
        source = "connectionString"
        if config.connection_variable:
            source = f"the environment variable {config.connection_variable} (connectionStringEnvVar)"
        if not text:
            raise UsageError(f"usageDBConfig: {source} is empty; set it to the address of a Prometheus")
        try:
            address = URL(text)
        except ValueError:
            address = URL()
        if address.scheme not in ("http", "https") or not address.host:
            raise UsageError(f"usageDBConfig: {source} is not an address such as http://prometheus:9090")
        return address

    # All capacities first (queues:Q-340).  A cluster without GPUs has none of that one, and usage of the rest
    # (queues:Q-344); one without any is one of which nothing is known.
    async def _query_all(
        self, connection: _InstantQueries, capacity: Sequence[str], allocated: Sequence[str]
    ) -> Mapping[str, UsageAmounts]:
        totals = [first_value(await self._query(connection, query)) for query in capacity]
        if not any(totals):
            raise UsageError(
                f"no data returned for the capacity of the cluster, asked as {capacity[0]}; "
                "is kube-state-metrics scraped?"
            )
        sums: list[Sequence[tuple[str, float]]] = []
        for name, total, query in zip(RESOURCE_NAMES, totals, allocated, strict=True):
            samples = (await self._query(connection, query)).samples if total else ()
            if total and not samples:
                self._log_once(f"no data returned for the {name} of queues, asked as {query}; it counts as not used")
            sums.append(samples)
        return usage_fractions(totals, sums)

    async def _query(self, connection: _InstantQueries, query: str) -> InstantVector:
        vector = await connection.query(query)
        for warning in vector.warnings:
            self._log_once(f"{warning} (query {query})")
        return vector

    def _log_once(self, text: str) -> None:
        # The time is part of a decayed query, so there may be many.
        if text not in self._logged and len(self._logged) < 100:
            self._logged.add(text)
            log.warning("usage from Prometheus: %s", text)


class _InstantQueries:
    """Queries of one fetch, all at the same instant."""

    def __init__(self, session: aiohttp.ClientSession, address: URL, now_ns: int) -> None:
        self._session = session
        self._url = address / "api/v1/query"
        self._time = f"{now_ns / SECOND:.3f}"
        self._method = "POST"

    async def query(self, query: str) -> InstantVector:
        status, body = await self._send(query)
        if self._method == "POST" and status in _GET_INSTEAD:
            self._method = "GET"
            status, body = await self._send(query)
        try:
            return read_vector(body)
        except UsageError as error:
            raise UsageError(f"answered {status} to the query {query}: {error}") from None

    async def _send(self, query: str) -> tuple[int, bytes]:
        fields = {"query": query, "time": self._time}
        sent = {"data": fields} if self._method == "POST" else {"params": fields}
        async with self._session.request(self._method, self._url, **sent) as answer:  # type: ignore[arg-type]
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    raise UsageError(f"the answer to the query {query} has more than {_MAX_ANSWER_BYTES >> 20} MiB")
            return answer.status, bytes(body)
