"""The three kinds of SOURCE that `models add` takes: a file of the Hub, a web address, a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from appliance import hub, web
from appliance.catalog import File, FileSource, HfSource, UrlSource
from appliance.errors import Gated, NotOnHub, NotVerified, UsageError
from appliance.hub import HubName, Quant, Repo, RepoFile
from appliance.operations.catalog import choosing
from appliance.operations.catalog.candidate import Candidate, Wishes
from appliance.operations.catalog.peek import Peeked, Refused, peek
from appliance.operations.describe import describe
from appliance.store import threads
from appliance.text import clean_line

_SECRET = re.compile(
    r"sig|token|secret|passw|credential|^x-(amz|goog|ms)-|^(key|auth|expires|policy|key-pair-id|api_?key)$",
    re.IGNORECASE,
)


def hub_name(text: str, env: Mapping[str, str]) -> HubName | None:
    """`hf:...` or an address at the Hub as a name there; None for anything else. Raises UsageError."""
    name = hub.parse(text) if text.startswith("hf:") else _at_the_hub(text, env)
    if name is not None and (name.path is None or not name.path.lower().endswith(".gguf")):
        raise UsageError(
            f"{clean_line(text, 200)} names no .gguf file.",
            hint=f"`appliance models show hf:{name.repo}` lists those that are there.",
        )
    return name


def _at_the_hub(text: str, env: Mapping[str, str]) -> HubName | None:
    """What an address at the Hub means; a path needs no Hub. Raises UsageError for one that is no address."""
    if not re.match(r"https?://", text, re.IGNORECASE):
        return None
    try:
        urlsplit(text)
    except ValueError:
        raise UsageError("The address can't be read.", hint="Like https://HOST/PATH/FILE.gguf") from None
    return hub.of_url(text, hub.endpoint(env))


async def on_hub(name: HubName, wishes: Wishes, env: Mapping[str, str]) -> Candidate:
    """Commit, size and hash as the Hub states them; the header over a range. Raises HubError, NotVerified."""
    repo = await hub.aside(hub.look, name.repo, name.revision, env=env)
    quants, projectors = hub.grouped(repo.files)
    quant = _with_wishes(named(name, repo, quants), wishes, repo)
    choosing.require_pinnable(quant, repo)
    first = quant.files[0]
    url = hub.file_url(hub.endpoint(env), repo.repo, repo.commit, first.path)
    looked = await _looked(url, repo, env)
    if looked.size not in (None, first.size):
        raise NotVerified(
            f"{clean_line(first.path, 120)} has another size than was stated; nothing was added.",
            cause=f"{_sentence(repo.stated_by)} states {first.size} bytes, and the file has {looked.size}.",
            hint="Try again later, or another mirror.",
        )
    projector = choosing.only_projector(repo)
    variant = choosing.variant_of("any", repo, quant.files, projector)
    by_user = wishes.sha256 is not None and not _stated(name, repo)
    shown = projectors[:1] if projector is None else (projector,)
    hints = [_projector_hint(file, taken=projector is not None) for file in shown]
    if repo.gated:
        hints.append(f"The model is gated: accept its terms at {repo.page}.")
    return Candidate(
        source=HfSource(kind="hf", repo=repo.repo, revision=repo.commit), files=variant.files,
        pin="user" if by_user else "hub",
        description=describe(looked.header, first.path),
        stated_by=f"{repo.stated_by}, at commit {repo.commit[:12]}",
        license=repo.license, page=repo.page, hints=tuple(hints),
        params=float(repo.params) if repo.params else None, pin_host=None if by_user else repo.mirror,
    )  # fmt: skip


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


async def _looked(url: str, repo: Repo, env: Mapping[str, str]) -> Peeked:
    """The file's beginning. A gated repository describes itself to all, but hands out files to members."""
    token = await threads.run(None, hub.token, env)
    try:
        return await hub.aside(peek, url, env, token)
    except Refused as error:
        if repo.gated and error.http_status in (401, 403):
            raise Gated(
                f"{repo.repo} is gated: its terms have to be accepted first.",
                cause="The token's account has not been let in." if token else "No token is set.",
                hint=f"Accept the terms at {repo.page}, then set HF_TOKEN to a token of that account.",
            ) from error
        raise


def _projector_hint(file: RepoFile, *, taken: bool) -> str:
    """A line to paste, where a repository of several models leaves open which of them a projector is for."""
    name = clean_line(file.path, 120)
    if taken:
        return f"Its projector for pictures comes along: {name}."
    if not file.pinnable:
        return f"The repository has a projector for pictures, {name}, but states no hash for it."
    return (
        "The repository has a projector for pictures. If it belongs to this model, add to `files`: "
        f'{{ name = "{name}", role = "mmproj", size = {file.size}, sha256 = "{file.sha256}" }}'
    )


async def at_url(url: str, wishes: Wishes, env: Mapping[str, str]) -> Candidate:
    """The header over a range, size and perhaps hash as the server states them. Raises NotVerified."""
    refuse_secrets(url)
    name = unquote(PurePosixPath(urlsplit(url).path).name)
    if hub.part_of(name) is not None:
        raise UsageError(
            f"{clean_line(name, 120)} is one part of a split set.",
            hint="Write the entry by hand: `url` ends in /, and `files` lists all parts with their hashes.",
        )
    looked = await hub.aside(peek, url, env)
    sha256, size = wishes.sha256 or looked.sha256, wishes.size or looked.size
    if sha256 is None or size is None:
        missing = " and ".join(word for word, value in (("SHA-256", sha256), ("size", size)) if value is None)
        raise NotVerified(
            f"{urlsplit(url).hostname} states no {missing} that can be trusted for {clean_line(name, 120)}.",
            cause="Without them, nothing could prove what is fetched later.",
            hint="Give what the publisher states: --sha256 HASH"
            + (" --size BYTES." if size is None else "."),
        )
    _agree(wishes, looked.sha256, looked.size, f"{urlsplit(url).hostname} states")
    pinned = _file(name, size, sha256)
    who = "you" if wishes.sha256 else f"{urlsplit(url).hostname} ({looked.sha256_from})"
    return Candidate(
        source=_url_source(url), files=(pinned,), pin="user", description=describe(looked.header, name),
        stated_by=who, page=web.shown(url).rpartition("/")[0],
    )  # fmt: skip


def refuse_secrets(url: str) -> None:
    """An address is stored and shown, so it may hold no password and no signature. Raises UsageError."""
    parts = urlsplit(url)
    secret = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if _SECRET.search(key)]
    if parts.username or parts.password or secret or parts.fragment:
        what = "a user or password" if parts.username or parts.password else "a signature or key"
        raise UsageError(
            f"{web.shown(url)} was given with {what if not parts.fragment else 'a part after #'}.",
            cause="An entry is written to disk and shown; signed addresses also expire.",
            hint="Give the address without it, or fetch the file yourself and add its path.",
        )


def _url_source(url: str) -> UrlSource:
    try:
        return UrlSource(kind="url", url=url)
    except ValidationError as error:
        raise choosing.unusable(error) from None


def named(name: HubName, repo: Repo, quants: tuple[Quant, ...]) -> Quant:
    """The set that a path belongs to: any part of a split set means all of it.

    Raises UsageError for a projector, NotOnHub for what is not there.
    """
    for quant in quants:
        if any(file.path == name.path for file in quant.files):
            return quant
    path, revision = clean_line(name.path or "", 200), clean_line(name.revision or "main", 80)
    if hub.is_projector(path) and any(file.path == name.path for file in repo.files):
        raise UsageError(
            f"{path} is a projector, which belongs to a model.",
            hint=f"Add the model: `appliance models show hf:{repo.repo}` lists what is there.",
        )
    raise NotOnHub(
        f"{repo.repo} has no file {path!r} at {revision}.",
        cause="Names are told apart by upper and lower case." if _other_case(name, repo) else None,
        hint=f"`appliance models show hf:{repo.repo}` lists those that are there.",
    )


def _other_case(name: HubName, repo: Repo) -> bool:
    return any(file.path.lower() == (name.path or "").lower() for file in repo.files)


def _with_wishes(quant: Quant, wishes: Wishes, repo: Repo) -> Quant:
    """The user's size and hash must agree with the Hub's, and stand in where it states none."""
    if wishes.sha256 is None and wishes.size is None:
        return quant
    if len(quant.files) > 1:
        raise UsageError(
            "--sha256 and --size belong to one file, and this is a split set.",
            hint="Leave them out: the Hub states those of all parts.",
        )
    file = quant.files[0]
    _agree(wishes, file.sha256, file.size, f"{_sentence(repo.stated_by)} states")
    filled = hub.RepoFile(file.path, file.size or wishes.size, file.sha256 or wishes.sha256)
    return Quant(quant.label, (filled,), quant.n_parts)


def _agree(wishes: Wishes, sha256: str | None, size: int | None, who: str) -> None:
    if wishes.sha256 and sha256 and wishes.sha256 != sha256:
        raise NotVerified(
            "The SHA-256 is another one; nothing was added.",
            cause=f"You gave {wishes.sha256}. {who} {sha256}.",
            hint="Look again at the source of your hash, and at the revision.",
        )
    if wishes.size and size and wishes.size != size:
        raise NotVerified(
            "The size is another one; nothing was added.",
            cause=f"You gave {wishes.size} bytes. {who} {size}.",
            hint="Leave --size out, or look at the address again.",
        )


def _stated(name: HubName, repo: Repo) -> bool:
    return any(file.path == name.path and file.sha256 is not None for file in repo.files)


def _file(name: str, size: int, sha256: str) -> File:
    try:
        return File(name=name, size=size, sha256=sha256)
    except ValidationError as error:
        raise choosing.unusable(error) from None


def file_source(path: Path) -> FileSource:
    """A file or folder of this computer as a source."""
    try:
        return FileSource(kind="file", path=str(path))
    except ValidationError as error:
        raise choosing.unusable(error) from None
