"""The window: what is asked for next, whatever the connections do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.store.chunkmap import ChunkMap
from appliance.store.segments import Span, Window, segment_for

CHUNK = 8
SEGMENT = 32
AHEAD = 64
SIZE = 500


@given(
    st.integers(0, 1 << 40), st.integers(1, 16), st.sampled_from([4096, 1 << 20, 8 << 20]), st.integers(1, 9)
)
def test_a_segment_is_whole_chunks_and_not_larger_than_it_may_be(
    missing: int, connections: int, chunk: int, largest: int
) -> None:
    found = segment_for(missing, connections, chunk, largest * chunk)
    assert found % chunk == 0
    assert chunk <= found <= largest * chunk


def test_each_connection_gets_about_two_segments() -> None:
    assert segment_for(64 << 20, 4, 8 << 20) == 8 << 20
    assert segment_for(1 << 30, 4, 8 << 20) == 64 << 20
    assert segment_for(400 << 20, 4, 8 << 20) == 56 << 20


class Connections(RuleBasedStateMachine):
    """Some connections of any speed, which break at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.map = ChunkMap(SIZE, CHUNK)
        self.map.set(3, 8, "")  # one chunk is here, and half of another
        self.map.set(5, 4, "")
        self.here = {at for at in range(SIZE) if 24 <= at < 32 or 40 <= at < 44}
        self.window = Window(self.map.gaps(), chunk=CHUNK, segment=SEGMENT, ahead=AHEAD)
        self.spans: list[Span] = []
        self.now = 0.0

    @rule(rate=st.sampled_from([0.0, 1e9]))
    def take(self, rate: float) -> None:
        first = self.window.first_missing
        span = self.window.take(self.now, rate)
        if span is None:
            return
        assert first is not None
        assert span.stop - first <= AHEAD or span.start == first
        assert span.start % CHUNK == 0 or span.start - 1 in self.here
        self.spans.append(span)

    @precondition(lambda self: self.spans)
    @rule(data=st.data(), n_bytes=st.integers(1, 40), seconds=st.floats(0, 5))
    def receive(self, data: st.DataObject, n_bytes: int, seconds: float) -> None:
        span = data.draw(st.sampled_from(self.spans))
        self.now += seconds
        for at in range(span.at, min(span.stop, span.at + n_bytes)):
            assert at not in self.here, "a byte came twice"
            self.here.add(at)
        span.at = min(span.stop, span.at + n_bytes)

    @precondition(lambda self: self.spans)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        span = data.draw(st.sampled_from(self.spans))
        self.spans.remove(span)
        self.window.give_back(span)

    @invariant()
    def chunks_have_one_owner(self) -> None:
        owned: set[int] = set()
        for span in self.spans:
            chunks = set(range(span.at // CHUNK, -(-span.stop // CHUNK))) if not span.done else set()
            assert not owned & chunks
            owned |= chunks

    @invariant()
    def what_is_here_lies_near_the_first_missing_byte(self) -> None:
        first = self.window.first_missing
        if first is not None:
            assert max(self.here) - first <= AHEAD + SEGMENT

    def teardown(self) -> None:
        """Whatever happened: the rest can be brought, and then all is here."""
        for span in self.spans:
            self.window.give_back(span)
        while (last := self.window.take(self.now)) is not None:
            self.here |= set(range(last.at, last.stop))
            last.at = last.stop
            self.window.give_back(last)
        assert self.here == set(range(SIZE))
        assert self.window.first_missing is None


TestConnections = Connections.TestCase


def test_an_idle_connection_takes_the_back_half_of_a_slow_one() -> None:
    window = Window([(0, 4 * CHUNK)], chunk=CHUNK, segment=4 * CHUNK, ahead=8 * CHUNK)
    slow = window.take(0.0)
    assert slow is not None
    slow.at = 4
    assert window.take(0.2) is None  # it will be here in a moment
    taken = window.take(10.0)
    assert taken is not None
    assert (slow.stop, taken.start, taken.stop) == (3 * CHUNK, 3 * CHUNK, 4 * CHUNK)


class TestTheLastChunkOfASlowConnection:
    def taken(self, seconds: float, rate: float, *, busy: bool = False) -> tuple[Span, Span | None]:
        window = Window([(0, CHUNK)], chunk=CHUNK, segment=CHUNK, ahead=CHUNK)
        slow = window.take(0.0)
        assert slow is not None
        slow.at, slow.busy = 2, busy
        return slow, window.take(seconds, rate)

    def test_is_taken_by_one_that_is_far_faster(self) -> None:
        slow, taken = self.taken(10.0, rate=10.0)
        assert taken is not None
        assert (slow.done, taken.start, taken.stop) == (True, 2, CHUNK)

    def test_is_left_to_it_where_the_other_is_no_faster(self) -> None:
        assert self.taken(10.0, rate=0.3)[1] is None

    def test_is_left_to_it_when_it_will_be_here_soon(self) -> None:
        assert self.taken(0.9, rate=1e9)[1] is None

    def test_is_left_to_it_while_it_writes(self) -> None:
        assert self.taken(10.0, rate=10.0, busy=True)[1] is None
