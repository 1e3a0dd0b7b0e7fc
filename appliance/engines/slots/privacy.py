"""Slots that hold a prompt which must not be written to disk.

A request that forbids it goes into a slot of its own, the highest that no other such request is using, and
that slot is not saved as long as its engine process lives. Such a prompt can leave its slot only by the
engine's RAM cache: a later request with the same beginning gets it into its own slot, where what they do not
share is dropped as soon as that request is worked on. One that ends before that may leave it there, so from
then on nothing of that process is saved.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from appliance.engines.values import Endpoint

_MOST = 256
"""Engine processes that are remembered; as many can't be alive."""


@dataclass(slots=True)
class _Book:
    """What is known of one engine process."""

    generation: int
    slots: set[int] = field(default_factory=set)
    """They hold, or held, such a prompt."""
    running: set[int] = field(default_factory=set)
    everything: bool = False
    seen: bool = False
    """There was one, so the RAM cache may hold it."""


class Privacy:
    """What the gateway tells and the saving asks. All in one event loop."""

    def __init__(self) -> None:
        self._books: OrderedDict[str, _Book] = OrderedDict()

    @contextlib.contextmanager
    def request(
        self,
        endpoint: Endpoint,
        *,
        private: bool,
        slots: int | None,
        spreads: bool,
        began: Callable[[], bool],
    ) -> Iterator[Mapping[str, int]]:
        """One request while it is inside the engine; what its body must say in addition.

        `spreads`: it takes several slots, or can't be told which. `began`: the engine has worked on it.
        """
        book = self._book(endpoint)
        if not private:
            try:
                yield {}
            finally:
                self._ordinary_ended(book, slots, began())
            return
        book.seen = True
        free = [] if slots is None else [one for one in range(slots) if one not in book.running]
        if spreads or not free:
            book.everything = True
            yield {}
            return
        slot = free[-1]
        book.slots.add(slot)
        book.running.add(slot)
        try:
            yield {"id_slot": slot}
        finally:
            book.running.discard(slot)

    def forbids_all(self, endpoint: Endpoint) -> bool:
        """Nothing of this process may be saved."""
        return self._book(endpoint).everything

    def slots(self, endpoint: Endpoint) -> frozenset[int]:
        """These may not be saved."""
        return frozenset(self._book(endpoint).slots)

    @staticmethod
    def _ordinary_ended(book: _Book, slots: int | None, began: bool) -> None:
        if not book.seen:
            return
        if not began:
            book.everything = True
        elif slots == 1 and not book.running:
            book.everything = False  # the only slot holds what this request said
            book.slots.clear()

    def _book(self, endpoint: Endpoint) -> _Book:
        where = endpoint.socket or endpoint.base_url
        book = self._books.get(where)
        if book is None or book.generation != endpoint.generation:
            book = self._books[where] = _Book(endpoint.generation)
        self._books.move_to_end(where)
        while len(self._books) > _MOST:
            self._books.popitem(last=False)
        return book
