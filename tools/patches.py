"""Patches functions of imported modules to what they would be after a change of their source.

Importing the project and collecting its tests takes longer than most tests. A change inside of functions needs neither
again: the two texts are compiled and compared, and functions get their new code in place.

That is the same as importing the changed text only as long as nothing has run the old code before. `Watch` therefore
records what was called while modules were imported and tests collected, and `Functions` refuses (`Unpatchable`)
whatever it cannot prove to be the same: code that was called, that runs at import (constants, fields, defaults,
decorators), that has other parameters, or whose function is ambiguous.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import defaultdict
from cProfile import Profile
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TypeGuard


class Unpatchable(Exception):
    """The change needs a new import; the text says why."""


@dataclass(frozen=True)
class Replacement:
    """A function, and the code it is to have."""

    function: FunctionType
    code: CodeType

    def make(self) -> None:
        """Give the function its new code."""
        self.function.__code__ = self.code


class Watch:
    """Records all functions of a folder that are called between `start` and `stop`."""

    def __init__(self, folder: Path) -> None:
        #: with the file, which code objects are compared without
        self.called: set[tuple[str, CodeType]] = set()
        self._folder = f"{folder}/"
        # The profiler records calls without running Python for each; it does not see other threads.
        self._profile = Profile(builtins=False)

    def start(self) -> None:
        """Record calls from here on, in this and in new threads."""
        threading.settrace(self._see)
        self._profile.enable()

    def stop(self) -> None:
        """Stop recording."""
        profiler: object = sys.getprofile()
        if sys.version_info < (3, 12) and profiler is not self._profile:
            raise RuntimeError("something else profiles: calls may have been missed")
        self._profile.disable()
        threading.settrace(None)
        for entry in self._profile.getstats():
            if isinstance(entry.code, CodeType):
                self._note(entry.code)

    def _see(self, frame: FrameType, _event: str, _argument: object) -> None:
        self._note(frame.f_code)

    def _note(self, code: CodeType) -> None:
        if code.co_filename.startswith(self._folder):
            self.called.add((code.co_filename, code))


class Functions:
    """The functions of a folder that live now."""

    def __init__(self, folder: Path, called: set[tuple[str, CodeType]]) -> None:
        self._called = called
        self._living: dict[tuple[str, CodeType], list[FunctionType]] = defaultdict(list)
        prefix = f"{folder}/"
        for found in _tracked():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(prefix):
                self._living[found.__code__.co_filename, found.__code__].append(found)

    def replacements(self, path: Path, before: str, after: str) -> list[Replacement]:
        """What gives the functions of a module the code they have in a changed text."""
        if not any(getattr(module, "__file__", None) == str(path) for module in list(sys.modules.values())):
            # A later import reads the changed text.
            return []
        old, new = _compiled(before, str(path)), compile(after, str(path), "exec", dont_inherit=True)
        changes: list[tuple[CodeType, CodeType]] = []
        if not _compare(old, new, changes):
            raise Unpatchable("what runs at import is changed")
        everything = _within(old)
        for was, becomes in changes:
            if (str(path), was) in self._called:
                raise Unpatchable(f"{was.co_qualname} was called before the tests began")
            if everything.count(was) != 1 or _parameters(was) != _parameters(becomes):
                raise Unpatchable(f"{was.co_qualname} has a twin or other parameters")
            if (str(path), was) not in self._living or was.co_freevars != becomes.co_freevars:
                raise Unpatchable(f"{was.co_qualname} is not held by a function, or by one with other variables")
        return [Replacement(function, becomes) for was, becomes in changes for function in self._living[str(path), was]]


def _tracked() -> list[object]:
    """All that the garbage collector knows; it does not list what is frozen, such as all that tests have imported."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    found = gc.get_objects()
    if was_frozen:
        gc.freeze()
    return found


@lru_cache(maxsize=16)
def _compiled(text: str, file: str) -> CodeType:
    return compile(text, file, "exec", dont_inherit=True)


def _compare(old: CodeType, new: CodeType, changes: list[tuple[CodeType, CodeType]]) -> bool:
    """Whether two bodies, of modules or classes, do the same but for functions that they define: these are added."""
    if _own(old) != _own(new) or len(old.co_consts) != len(new.co_consts):
        return False
    for was, becomes in zip(old.co_consts, new.co_consts, strict=True):
        if _is_function(was) and _is_function(becomes):
            if not _same(was, becomes):
                changes.append((was, becomes))
        elif isinstance(was, CodeType) and isinstance(becomes, CodeType):
            if not _compare(was, becomes, changes):
                return False
        elif not _same(was, becomes):
            return False
    return True


def _is_function(constant: object) -> TypeGuard[CodeType]:
    return isinstance(constant, CodeType) and bool(constant.co_flags & CO_OPTIMIZED)


def _same(was: object, becomes: object) -> bool:
    """Whether two constants are the same, wherever they stand in the file."""
    if isinstance(was, CodeType) and isinstance(becomes, CodeType):
        constants = (was.co_consts, becomes.co_consts)
        return _own(was) == _own(becomes) and len(constants[0]) == len(constants[1]) and all(map(_same, *constants))
    return type(was) is type(becomes) and repr(was) == repr(becomes)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a piece of code does by itself, wherever it stands."""
    names = (code.co_qualname, code.co_names, code.co_freevars, code.co_cellvars)
    return (*names, *_parameters(code), code.co_varnames, code.co_code, code.co_exceptiontable)


def _parameters(code: CodeType) -> tuple[object, ...]:
    counts = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount)
    flags = code.co_flags
    return (*counts, flags, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _within(code: CodeType) -> list[CodeType]:
    found = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found + [deeper for each in found for deeper in _within(each)]
