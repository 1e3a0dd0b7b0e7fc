"""Taking a damaged file out of use, and keeping what is known of a good one. The caller holds the lock.

A file whose chunks are known becomes the partial file of the next pull, which then fetches only the chunks
that differ. Any other goes to quarantine. One that has a name outside the store is never written.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from appliance.catalog import File
from appliance.store import chunks, layout, partlog, quarantine
from appliance.store.chunks import ChunkDigests
from appliance.store.damage import Finding, Good
from appliance.store.layout import Layout
from appliance.store.partlog import Head, Line
from appliance.store.types import Damage

log = logging.getLogger("appliance.store")


def put_away(where: Layout, folder: Path, ref: str, pin: File, item: Finding) -> Damage:
    """Take the file that has the final name of `pin` out of use. Blocks. Raises OSError."""
    path = layout.final(folder, pin)
    if item.known is not None and _can_go_on(item, path):
        kept = _demote(folder, pin, item, item.known)
        log.info("%s of %s is damaged; what differs is fetched next", pin.base_name, ref)
        return item.damage(pin, "partial", kept)
    kept = quarantine.put_aside(
        where, path, pin, ref=ref, actual=item.sha256, source="this disk", why=item.why
    )
    layout.chunks(folder, pin).unlink(missing_ok=True)
    log.info("%s of %s is quarantined: it %s", pin.base_name, ref, item.why)
    return item.damage(pin, "quarantined", kept)


def learn(folder: Path, pin: File, item: Good) -> None:
    """Keep the digests of the chunks of a file that matched, where none, or wrong ones, are kept."""
    path = layout.chunks(folder, pin)
    try:
        if chunks.read(path, pin.size, pin.sha256) != item.digests:
            item.digests.write(path)
    except OSError as error:  # a full or read-only disk: it only makes a later repair dearer
        log.info("%s can't be written: %s", path, error.strerror)


def _can_go_on(item: Finding, path: Path) -> bool:
    """Whether a pull may write into these bytes: it is known which are good, and nobody else has them."""
    if item.known is None or len(item.bad) == len(item.known.xxh3):
        return False
    return path.stat().st_nlink == 1 and not path.is_symlink()


def _demote(folder: Path, pin: File, item: Finding, known: ChunkDigests) -> Path:
    """Make a verified file the partial one again; its log names the chunks that are good.

    The log comes first: without the partial file it says nothing, while a partial file without a log would be
    taken for bytes that have just arrived.
    """
    path, part = layout.final(folder, pin), layout.part(folder, pin)
    lines = [
        Line(index, min(known.chunk, pin.size - index * known.chunk), digest)
        for index, digest in enumerate(known.xxh3)
        if index not in item.bad
    ]
    partlog.write(layout.log(folder, pin), Head(pin.size, pin.sha256, known.chunk), lines)
    if path.stat().st_size > pin.size:
        os.truncate(path, pin.size)
    os.replace(path, part)
    layout.chunks(folder, pin).unlink(missing_ok=True)
    return part
