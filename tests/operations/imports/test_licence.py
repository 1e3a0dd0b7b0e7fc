"""What may not be used without a yes is not imported without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import LicenseNotAccepted
from appliance.operations.imports import import_path
from appliance.paths import Paths
from tests.operations.hubhouse import body, entry
from tests.operations.imports.house import COMMIT, in_lmstudio, listing
from tests.operations.test_licences import licensed

NOTE = "non-commercial: not at work"


def restricted(paths: Paths, raw: bytes) -> str:
    text = entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", raw)
    return text.replace('license = "apache-2.0"', f'license = "cc-by-nc-4.0"\nlicense_note = "{NOTE}"')


class TestLicence:
    @pytest.mark.parametrize("model_id", [None, "mine"])
    async def test_bytes_of_a_restricted_model_ask(
        self, paths: Paths, home: Path, model_id: str | None
    ) -> None:
        shelf = listing(paths, restricted(paths, body(1)))
        before = paths.user_catalog.read_bytes()
        path = in_lmstudio(home, "a/b/any name.gguf", body(1))
        with pytest.raises(LicenseNotAccepted) as caught:
            await import_path(shelf, path, id=model_id)
        words = f"models import '{path}'" + (f" --id {model_id}" if model_id else "")
        assert f"{words} --accept-license" in (caught.value.hint or "")
        assert shelf.store.list() == ()
        assert paths.user_catalog.read_bytes() == before
        done = await import_path(shelf, path, id=model_id, accepted=True)
        assert done.stored is not None
        assert done.ref.model.license_note == NOTE

    async def test_a_header_that_forbids_asks_and_is_noted(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, "schema = 1\n")
        path = in_lmstudio(home, "a/b/own.gguf", licensed("cc-by-nc-4.0"))
        with pytest.raises(LicenseNotAccepted):
            await import_path(shelf, path)
        await import_path(shelf, path, accepted=True)
        assert shelf.catalog.models["own"].restricted

    async def test_a_file_that_says_nothing_is_noted_as_not_checked(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, "schema = 1\n")
        done = await import_path(shelf, in_lmstudio(home, "a/b/own.gguf", licensed(None)))
        assert (done.ref.model.license_note or "").startswith("not checked")
        assert not done.ref.model.restricted

    async def test_it_hides_in_no_free_model_of_the_user(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, "schema = 1\n")
        await import_path(shelf, in_lmstudio(home, "a/b/own-Q8_0.gguf", body(1, file_type=7)))
        path = in_lmstudio(home, "c/d/own-F32.gguf", licensed("cc-by-nc-4.0"))
        done = await import_path(shelf, path, accepted=True)
        assert done.ref.id == "own-imported"
        assert done.ref.model.restricted
