"""Which bytes of a file are here: for each chunk how much of its front. Pure; its owner holds the lock."""

from __future__ import annotations

from appliance.store import chunks


class ChunkMap:
    """All chunks of a file of `size` bytes, empty at first.

    A chunk fills from its front: that keeps what must be remembered to one number and one digest.
    """

    def __init__(self, size: int, chunk: int) -> None:
        self.size = size
        self.chunk = chunk
        self.lengths = [0] * chunks.count(size, chunk)
        self.digests = [""] * len(self.lengths)
        """xxh3 of the first `lengths[index]` bytes, as they came."""
        self.arrived = 0
        """Bytes that are here, anywhere."""
        self._front = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def start(self, index: int) -> int:
        """First byte of a chunk."""
        return index * self.chunk

    def stop(self, index: int) -> int:
        """The byte after a chunk."""
        return self.start(index) + self.full(index)

    def full(self, index: int) -> int:
        """Bytes of a chunk when it is whole."""
        return min(self.chunk, self.size - index * self.chunk)

    def set(self, index: int, length: int, digest: str) -> None:
        """The first `length` bytes of chunk `index` are here."""
        if not 0 <= length <= self.full(index):
            raise ValueError(f"chunk {index} has no {length} bytes")
        self.arrived += length - self.lengths[index]
        self.lengths[index], self.digests[index] = length, digest
        if index < self._front and length < self.full(index):
            self._front = index
        while self._front < len(self.lengths) and self.lengths[self._front] == self.full(self._front):
            self._front += 1

    @property
    def frontier(self) -> int:
        """The first byte that is not here; the size when all are."""
        if self._front == len(self.lengths):
            return self.size
        return self.start(self._front) + self.lengths[self._front]

    @property
    def whole(self) -> bool:
        return self.arrived == self.size

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """What is missing, in order, as (first byte, byte after the last). They end where bytes are."""
        found: list[tuple[int, int]] = []
        for index, length in enumerate(self.lengths):
            start = self.start(index) + length
            stop = self.stop(index)
            if start == stop:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], stop)
            else:
                found.append((start, stop))
        return tuple(found)
