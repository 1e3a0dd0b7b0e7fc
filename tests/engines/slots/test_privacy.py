"""Prompts that must not be written keep to slots that are not saved."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from appliance.engines import Endpoint
from appliance.engines.slots import Privacy

HERE = Endpoint("http://engine", "/run/engine-1.sock", "key", 1)


def private(book: Privacy, slots: int | None = 3, *, spreads: bool = False) -> AbstractContextManager[Any]:
    return book.request(HERE, private=True, slots=slots, spreads=spreads, began=lambda: True)


def ordinary(book: Privacy, slots: int | None = 3, *, began: bool = True) -> AbstractContextManager[Any]:
    return book.request(HERE, private=False, slots=slots, spreads=False, began=lambda: began)


def test_the_highest_slot_that_no_other_such_request_uses() -> None:
    book = Privacy()
    with private(book) as one, private(book) as two:
        assert (one, two) == ({"id_slot": 2}, {"id_slot": 1})
        with ordinary(book) as none:
            assert none == {}
    assert book.slots(HERE) == {1, 2}
    with private(book) as again:
        assert again == {"id_slot": 2}
    assert book.slots(HERE) == {1, 2}
    assert not book.forbids_all(HERE)


def test_an_engine_without_such_requests_is_free_to_save_whatever_fails() -> None:
    book = Privacy()
    with ordinary(book, began=False):
        pass
    assert (book.slots(HERE), book.forbids_all(HERE)) == (frozenset(), False)


def test_a_later_request_that_ends_before_it_begins_may_have_fetched_the_prompt_into_its_slot() -> None:
    book = Privacy()
    with private(book):
        pass
    with ordinary(book):
        pass
    assert not book.forbids_all(HERE)
    with ordinary(book, began=False):
        pass
    assert book.forbids_all(HERE)


@pytest.mark.parametrize(("slots", "spreads"), [(None, False), (3, True)])
def test_where_nobody_knows_the_slot_nothing_is_saved(slots: int | None, spreads: bool) -> None:
    book = Privacy()
    with private(book, slots, spreads=spreads) as more:
        assert more == {}
    assert book.forbids_all(HERE)


def test_the_only_slot_is_free_again_once_another_prompt_fills_it() -> None:
    book = Privacy()
    with private(book, 1) as more:
        assert more == {}  # there is no choice, and not every engine with one slot takes the field
        assert book.slots(HERE) == {0}
    with ordinary(book, 1, began=False):
        pass
    assert book.forbids_all(HERE)
    with ordinary(book, 1):
        pass
    assert (book.slots(HERE), book.forbids_all(HERE)) == (frozenset(), False)
    with ordinary(book, 1), private(book, 1):
        pass
    with private(book, 1), ordinary(book, 1):
        pass
    assert book.slots(HERE) == {0}


def test_the_next_process_begins_anew() -> None:
    book = Privacy()
    with private(book, None):
        pass
    book.forbid_all(HERE)
    later = Endpoint("http://engine", HERE.socket, "key2", 2)
    assert book.forbids_all(HERE)
    assert not book.forbids_all(later)


def test_a_request_that_fails_gives_its_place_back() -> None:
    book = Privacy()
    with pytest.raises(ConnectionError), private(book):
        raise ConnectionError
    with private(book) as more:
        assert more == {"id_slot": 2}
    assert book.slots(HERE) == {2}
