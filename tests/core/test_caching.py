"""Every cache has an explicit end."""

from __future__ import annotations

from pykai.core.caching import Cache, Memo, VersionedCache, VersionedValue, caches_disabled


def test_a_full_cache_is_cleared() -> None:
    cache: Cache[int, str] = Cache(max_entries=2)
    for number in range(3):
        assert cache.store(number, str(number)) == str(number)
    assert cache == {2: "2"}
    cache.store(3, "3")
    cache.store(2, "two")
    assert cache == {2: "two", 3: "3"}, "no room is needed for a key it has"


def test_a_memo_makes_a_value_once() -> None:
    memo = Memo()
    values = iter((7, 8))
    assert [memo.remember("key", lambda: next(values)) for _ in range(2)] == [7, 7]


def test_versioned_values_hold_for_their_version() -> None:
    cache: VersionedCache[str, int] = VersionedCache()
    value: VersionedValue[int] = VersionedValue()
    assert not cache
    cache.store("key", 3, 7)
    value.store(3, 7)
    assert cache
    assert [cache.may_have(version) for version in (3, 4)] == [True, False]
    assert [cache.current("key", version) for version in (3, 4)] == [7, None]
    assert [value.current(version) for version in (3, 4)] == [7, None]
    assert value.latest == 7
    value.store(4, 8)
    assert [value.current(version) for version in (3, 4)] == [None, 8]


def test_a_disabled_cache_keeps_nothing() -> None:
    cache: Cache[str, int] = Cache()
    versioned: VersionedCache[str, int] = VersionedCache()
    value: VersionedValue[int] = VersionedValue()
    with caches_disabled():
        assert (cache.store("key", 1), versioned.store("key", 0, 2), value.store(0, 3)) == (1, 2, 3)
        assert Memo().remember("key", lambda: 4) == 4
    assert (cache, bool(versioned), value.current(0)) == ({}, False, None)
    assert cache.store("key", 1) == cache["key"]
