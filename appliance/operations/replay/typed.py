"""The router's values from the objects of a recorded decision. A field of the wrong type is told by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from appliance.operations.replay.fields import BadLine, Fields
from appliance.routing import Features, LocalView, RemoteView, View

T = TypeVar("T")
Reader = Callable[[Fields, str], Any]


def features(raw: Fields) -> Features:
    """What matters about a request."""
    return _made(Features, raw)


def view(raw: Fields) -> View:
    """The machine at the moment of the decision, with local side and remotes."""
    return _made(View, raw)


def _made(kind: type[T], raw: Fields) -> T:
    """The value with this object's fields; a field that no version of here knows is passed over, since a
    newer one may have written it."""
    values: dict[str, Any] = {}
    readers, optional = _readers(cast("Any", kind)), _optional(cast("Any", kind))
    for f in fields(cast("Any", kind)):
        read = readers[f.name]
        if raw.get(f.name) is not None:
            values[f.name] = read(raw, f.name)
        elif f.name in optional:
            values[f.name] = None if f.default is MISSING else f.default
        elif f.default is MISSING and f.default_factory is MISSING:
            raise BadLine(
                f"`{f.name}` of the {kind.__name__} is missing", "Leave `view` out, or write it whole."
            )
    return kind(**values)


@cache
def _readers(kind: type) -> Mapping[str, Reader]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


@cache
def _optional(kind: type) -> frozenset[str]:
    """The fields that may be None."""
    return frozenset(name for name, hint in get_type_hints(kind).items() if NoneType in get_args(hint))


def _reader(hint: Any) -> Reader:
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (one for one in get_args(hint) if one is not NoneType)
        return _reader(inner)
    if get_origin(hint) is Literal:
        return lambda raw, name: raw.one_of(name, get_args(hint))
    if hint in (LocalView, RemoteView):
        return lambda raw, name: _made(hint, cast("Fields", raw.part(name)))
    if get_origin(hint) is tuple:
        (inner, _) = get_args(hint)
        if inner is str:
            return lambda raw, name: raw.texts(name)
        return lambda raw, name: tuple(_made(inner, one) for one in raw.parts(name))
    simple: dict[Any, Reader] = {
        bool: lambda raw, name: raw.flag(name),
        int: lambda raw, name: raw.whole(name),
        float: lambda raw, name: raw.number(name),
        str: lambda raw, name: raw.words(name),
    }
    return simple[hint]
