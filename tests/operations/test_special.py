"""What a model is started with beyond its weights: proven, checked, and never without a word left out."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest

from appliance import settings
from appliance.catalog import ModelRef
from appliance.daemon.launching import make_launch, prove
from appliance.errors import GgufError, ModelMissing, NotVerified, UsageError
from appliance.gguf import read_header
from appliance.operations.models import Library
from appliance.operations.plans.answer import answer
from appliance.operations.plans.headers import subject_of
from appliance.operations.special import hashes
from appliance.operations.special.loading import for_load, for_plan
from appliance.operations.use import mode_of
from appliance.paths import Paths
from appliance.store import Stored
from appliance.store.regular import reader
from tests.engines.bert_file import CLS, RANK, write_bert
from tests.engines.clip_file import Vision, write_clip
from tests.engines.launches import plan
from tests.engines.lora_file import write_lora
from tests.gguf import writer as w

ID = "smollm2-135m-instruct"
EYES = Vision("mlp", image=64, patch=16, embd=64, ff=128, heads=2, layers=2, out=576)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def configured(paths: Paths, text: str) -> Library:
    paths.config_file.write_text(text, encoding="utf-8")
    return Library.open(paths, settings.load(paths.config_file, env={"X": ""}))


def with_lora(paths: Paths, file: Path, digest: str | None = None, scale: float = 0.5) -> Library:
    pin = digest or sha256(file)
    text = f'[overrides."{ID}"]\nlora = [{{ file = "{file}", sha256 = "{pin}", scale = {scale} }}]\n'
    return configured(paths, text)


async def taken(library: Library, model: Path, name: str = ID) -> tuple[ModelRef, Stored]:
    ref = library.resolve(name)
    await library.store.adopt(ref, [model], "reference")
    return ref, await library.require(ref)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lora(tmp_path / "polite.gguf")


def change_a_byte(file: Path) -> None:
    """As if nothing had been written: size and modification time stay."""
    stat = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"\x7f")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


class TestAdapters:
    async def test_one_of_the_settings_is_proven_planned_and_launched(
        self, paths: Paths, smollm2_path: Path, file: Path
    ) -> None:
        library = with_lora(paths, file)
        ref, stored = await taken(library, smollm2_path)
        subject, special = await for_load(library, ref, stored, None)
        (planned,) = subject.adapters
        tensors = sum(tensor.n_bytes for tensor in read_header(file).tensors)
        assert (planned.name, planned.scale, planned.n_bytes) == ("polite.gguf", 0.5, tensors)
        (launched,) = special.adapters
        assert (launched.path, launched.sha256, launched.scale) == (file, sha256(file), 0.5)
        document = await answer(library, {"model": ID, "gpu": ["8GiB"], "ram": "8GiB"}, env={})
        assert [(one["name"], one["scale"], one["sha256"]) for one in document["adapters"]] == [
            ("polite.gguf", 0.5, sha256(file))
        ]

    async def test_another_hash_is_refused_with_the_one_that_was_found(
        self, paths: Paths, smollm2_path: Path, file: Path
    ) -> None:
        library = with_lora(paths, file, "ab" * 32)
        ref, stored = await taken(library, smollm2_path)
        with pytest.raises(NotVerified) as caught:
            await for_load(library, ref, stored, None)
        assert sha256(file) in (caught.value.cause or "")
        assert "config.toml" in (caught.value.hint or "")

    async def test_one_that_changes_while_it_is_served_is_not_started_again(
        self, paths: Paths, smollm2_path: Path, file: Path
    ) -> None:
        library = with_lora(paths, file)
        ref, stored = await taken(library, smollm2_path)
        _, special = await for_load(library, ref, stored, None)
        launch = make_launch(ref, stored, plan(), special)
        assert launch.lora == special.adapters
        await prove(library, ref, launch)
        change_a_byte(file)
        with pytest.raises(NotVerified, match="not the adapter"):
            await prove(library, ref, launch)

    async def test_it_is_read_again_only_when_it_changed(
        self, paths: Paths, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads: list[Path] = []

        def counted(path: Path, *, follow: bool = False) -> object:
            reads.append(path)
            return reader(path, follow=follow)

        monkeypatch.setattr("appliance.store.regular.reader", counted)

        def times() -> int:
            return reads.count(file)

        assert await hashes.sha256_of(paths, file) == await hashes.sha256_of(paths, file) == sha256(file)
        assert times() == 1
        os.utime(file)
        assert await hashes.sha256_of(paths, file) == sha256(file)
        assert times() == 2
        assert paths.hashed.stat().st_mode & 0o777 == 0o600

    async def test_a_broken_record_is_begun_anew(
        self, paths: Paths, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        paths.hashed.write_text(json.dumps({"version": 1, "files": {str(file): {"state": 3}}}))
        with caplog.at_level(logging.WARNING):
            assert await hashes.sha256_of(paths, file) == sha256(file)
        assert "broken" in caplog.text
        assert str(file) in json.loads(paths.hashed.read_text())["files"]

    async def test_the_record_is_bounded(
        self, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hashes, "MOST", 2)
        for name in ("a", "b", "c"):
            (tmp_path / name).write_bytes(b"x")
            await hashes.sha256_of(paths, tmp_path / name)
        assert [Path(one).name for one in json.loads(paths.hashed.read_text())["files"]] == ["b", "c"]

    @pytest.mark.parametrize("what", ["absent", "a folder"])
    async def test_one_that_is_not_there_is_told(
        self, paths: Paths, smollm2_path: Path, tmp_path: Path, what: str
    ) -> None:
        wanted = tmp_path / "gone.gguf"
        if what == "a folder":
            wanted.mkdir()
        library = with_lora(paths, wanted, "ab" * 32)
        ref, stored = await taken(library, smollm2_path)
        with pytest.raises(ModelMissing) as caught:
            await for_load(library, ref, stored, None)
        assert "gone.gguf" in caught.value.message

    @pytest.mark.parametrize(
        ("written", "why"),
        [
            ({"arch": "qwen3"}, "made for qwen3, and the model is llama"),
            ({"general": "model"}, "calls it model"),
        ],
    )
    async def test_one_of_another_model_is_refused_before_anything_is_started(
        self, paths: Paths, smollm2_path: Path, tmp_path: Path, written: dict[str, str], why: str
    ) -> None:
        foreign = write_lora(tmp_path / "foreign.gguf", **written)  # type: ignore[arg-type]
        library = with_lora(paths, foreign)
        ref, stored = await taken(library, smollm2_path)
        with pytest.raises(GgufError) as caught:
            await for_load(library, ref, stored, None)
        assert f"{ID}:Q4_1 can't be started with foreign.gguf" in caught.value.message
        assert why in (caught.value.cause or "")

    async def test_one_that_is_no_gguf_is_named_with_its_setting(
        self, paths: Paths, smollm2_path: Path, tmp_path: Path
    ) -> None:
        junk = tmp_path / "notes.txt"
        junk.write_text("not a model at all, and no adapter either")
        library = with_lora(paths, junk)
        ref, stored = await taken(library, smollm2_path)
        with pytest.raises(GgufError) as caught:
            await for_load(library, ref, stored, None)
        assert str(junk) in caught.value.message
        assert "`lora`" in (caught.value.hint or "")

    async def test_one_of_the_catalog_is_fetched_and_proven_like_every_file(
        self, paths: Paths, smollm2_path: Path, tmp_path: Path, file: Path
    ) -> None:
        library, ref, stored = await with_files(
            paths, tmp_path, smollm2_path, file, 'role = "lora", scale = 0.25'
        )
        subject, special = await for_load(library, ref, stored, None)
        assert [(one.name, one.scale, one.sha256) for one in subject.adapters] == [
            ("polite.gguf", 0.25, sha256(file))
        ]
        (own,) = special.adapters
        assert (own.scale, own.sha256) == (0.25, sha256(file))
        assert own.path.is_relative_to(paths.models)
        launch = make_launch(ref, stored, plan(), special)
        await prove(library, ref, launch)
        own.path.chmod(0o644)
        own.path.write_bytes(b"damage")
        with pytest.raises(NotVerified):
            await prove(library, ref, launch)


class TestProjector:
    async def test_one_of_the_catalog_is_planned_and_launched(
        self, paths: Paths, smollm2_path: Path, tmp_path: Path
    ) -> None:
        eyes = write_clip(tmp_path / "mmproj-F16.gguf", EYES)
        library, ref, stored = await with_files(paths, tmp_path, smollm2_path, eyes, 'role = "mmproj"')
        subject, special = await for_load(library, ref, stored, None)
        assert subject.mmproj is not None
        assert subject.mmproj.weights == sum(tensor.n_bytes for tensor in read_header(eyes).tensors)
        launch = make_launch(ref, stored, plan(), special)
        assert launch.mmproj is not None
        assert launch.mmproj.read_bytes() == eyes.read_bytes()
        document = await answer(library, {"model": "mine", "gpu": ["8GiB"], "ram": "8GiB"}, env={})
        assert document["mmproj"] == "gpu"
        assert any(reason["code"] == "projector" for reason in document["reasons"])


class TestDraft:
    async def test_one_of_the_settings_runs_ahead_of_every_load(
        self, paths: Paths, smollm2_path: Path
    ) -> None:
        library = configured(paths, f'[overrides."{ID}"]\ndraft = "{ID}"\n')
        ref, stored = await taken(library, smollm2_path)
        subject, special = await for_load(library, ref, stored, None)
        assert subject.draft is not None
        assert special.draft is not None
        assert special.draft.main == stored.main
        launch = make_launch(ref, stored, plan(), special)
        assert (launch.draft, launch.draft_ref) == (stored.main, f"{ID}:Q4_1")

    async def test_one_that_is_not_here_is_left_out_with_what_to_do(
        self, paths: Paths, smollm2_path: Path
    ) -> None:
        library = configured(paths, f'[overrides."{ID}"]\ndraft = "qwen3-0.6b"\n')
        ref, stored = await taken(library, smollm2_path)
        subject, special = await for_load(library, ref, stored, None)
        assert (subject.draft, special.draft) == (None, None)
        (note,) = subject.notes
        assert note.code == "draft_left_out"
        assert "qwen3-0.6b" in note.text
        assert "models pull" in note.text

    async def test_one_with_another_vocabulary_is_left_out_and_asked_for_it_is_an_error(
        self, paths: Paths, smollm2_path: Path, gemma3_path: Path
    ) -> None:
        library = configured(paths, f'[overrides."{ID}:Q4_1"]\ndraft = "gemma-3-270m"\n')
        ref, stored = await taken(library, smollm2_path)
        await taken(library, gemma3_path, "gemma-3-270m")
        subject, _ = await for_load(library, ref, stored, None)
        assert subject.draft is None
        assert "another one than the model's" in subject.notes[0].text
        with pytest.raises(UsageError, match="can't run ahead"):
            await for_load(library, ref, stored, "gemma-3-270m")
        plain = await subject_of(library, ID)
        assert [note.code for note in (await for_plan(library, plain, None)).notes] == ["draft_left_out"]

    async def test_what_was_asked_for_wins_over_the_settings(self, paths: Paths, smollm2_path: Path) -> None:
        library = configured(paths, f'[overrides."{ID}"]\ndraft = "nonsuch"\n')
        ref, stored = await taken(library, smollm2_path)
        subject, special = await for_load(library, ref, stored, ID)
        assert special.draft is not None
        assert subject.notes == ()


class TestMode:
    def test_a_reranker_does_nothing_else_and_takes_a_text_at_once(self, tmp_path: Path) -> None:
        header = read_header(write_bert(tmp_path / "m.gguf", RANK))
        mode = mode_of(header, ("rerank",))
        assert (mode.reranking, mode.embedding, mode.alone, mode.in_one_piece) == (True, False, True, True)

    def test_a_reranker_that_reads_like_a_chat_model_can_be_fed_in_pieces(self, smollm2_path: Path) -> None:
        mode = mode_of(read_header(smollm2_path), ("rerank",))
        assert (mode.reranking, mode.in_one_piece) == (True, False)

    def test_pooling_is_the_entry_s_then_the_file_s_then_the_mean(
        self, tmp_path: Path, smollm2_path: Path
    ) -> None:
        cls = read_header(write_bert(tmp_path / "m.gguf", CLS))
        assert mode_of(cls, ("embedding",)).pooling == "cls"
        assert mode_of(cls, ("embedding",), "last").pooling == "last"
        mean = mode_of(read_header(smollm2_path), ("chat", "embedding"))
        assert (mean.pooling, mean.alone, mean.in_one_piece) == ("mean", False, False)

    @pytest.mark.parametrize(
        ("keys", "in_one_piece"),
        [
            ({"pooling_type": 3}, False),
            ({"pooling_type": 1}, True),
            ({"pooling_type": 0}, True),
            ({"pooling_type": 3, "attention.causal": False}, True),
        ],
    )
    def test_only_the_last_token_of_a_model_that_reads_forward_lets_a_text_be_split(
        self, tmp_path: Path, keys: dict[str, object], in_one_piece: bool
    ) -> None:
        entries = [w.entry("general.architecture", w.STRING, "qwen3")]
        for key, value in keys.items():
            entries.append(w.entry(f"qwen3.{key}", w.BOOL if isinstance(value, bool) else w.U32, value))
        (tmp_path / "m.gguf").write_bytes(w.gguf(entries))
        mode = mode_of(read_header(tmp_path / "m.gguf"), ("embedding",))
        assert mode.in_one_piece == in_one_piece
        assert mode.pooling in ("mean", "last")


async def with_files(
    paths: Paths, folder: Path, model: Path, other: Path, keys: str
) -> tuple[Library, ModelRef, Stored]:
    """A model of a catalog of one's own, with a second file, pulled."""
    source = folder / "source"
    source.mkdir()
    for one in (model, other):
        os.symlink(one, source / one.name)
    files = "".join(
        f'{{ name = "{one.name}", {what}, size = {one.stat().st_size}, sha256 = "{sha256(one)}" }},\n'
        for one, what in ((model, 'role = "model"'), (other, keys))
    )
    paths.user_catalog.write_text(
        'schema = 1\n[models.mine]\nfamily = "mine"\nname = "Mine"\nuse = ["chat"]\nlicense = "mit"\n'
        f'[[models.mine.variants]]\nquant = "Q4_1"\nsource = {{ kind = "file", path = "{source}" }}\n'
        f"files = [\n{files}]\n"
    )
    library = configured(paths, "")
    ref = library.resolve("mine")
    await library.store.pull(ref)
    return library, ref, await library.require(ref)
