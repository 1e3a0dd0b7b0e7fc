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
    inside: int = 0
    """Such requests that run now."""
    everything: bool = False
    seen: bool = False
    """There was one, so the RAM cache may hold it."""
    forever: bool = False
    """Nothing is saved, whatever comes."""


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
        book.inside += 1
        slot = None if spreads else _free(book, slots)
        try:
            told = _taken(book, slot)
            yield told if slots != 1 else {}
        finally:
            book.inside -= 1
            book.running.discard(-1 if slot is None else slot)

    def forbids_all(self, endpoint: Endpoint) -> bool:
        """Nothing of this process may be saved."""
        book = self._book(endpoint)
        return book.everything or book.forever

    def forbid_all(self, endpoint: Endpoint) -> None:
        """From now on nothing of this process may be saved: who had it all removed wants none of it back."""
        self._book(endpoint).forever = True

    def slots(self, endpoint: Endpoint) -> frozenset[int]:
        """These may not be saved."""
        return frozenset(self._book(endpoint).slots)

    @staticmethod
    def _ordinary_ended(book: _Book, slots: int | None, began: bool) -> None:
        if not book.seen:
            return
        if not began:
            book.everything = True
        elif slots == 1 and not book.inside:
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


def _free(book: _Book, slots: int | None) -> int | None:
    """The highest slot that no such request uses; None: there is none, or nobody knows how many there are."""
    return next((slot for slot in reversed(range(slots or 0)) if slot not in book.running), None)


def _taken(book: _Book, slot: int | None) -> Mapping[str, int]:
    if slot is None:
        book.everything = True
        return {}
    book.slots.add(slot)
    book.running.add(slot)
    return {"id_slot": slot}
