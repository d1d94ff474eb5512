"""A listener that keeps its calls, for tests of restoring and of standbys."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


class ListenerNotes:
    """Stands for a listener of ``protocol`` and takes the calls that this has, in no other form. ``at_call`` gets the name of
    each."""

    def __init__(self, protocol: type, at_call: Callable[[str], None] = lambda _: None) -> None:
        self._at_call = at_call
        self.told: dict[str, list[dict[str, Any]]] = {}
        """The arguments of each call, by the call's name."""
        for name, method in inspect.getmembers(protocol, inspect.isfunction):
            if name.startswith("on_"):
                self.told[name] = []
                setattr(self, name, partial(self._note, name, inspect.signature(method)))

    def _note(self, name: str, signature: inspect.Signature, *given: Any, **named: Any) -> None:
        self.told[name].append(dict(signature.bind(self, *given, **named).arguments))
        self._at_call(name)

    def by_partition(self, name: str, argument: str) -> dict[int, Any]:
        """What the last such call for each partition of the changelog has said."""
        return {call["topic_partition"].partition: call[argument] for call in self.told[name]}
