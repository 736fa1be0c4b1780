"""Parses request bodies as Go's `encoding/json` does, since clients rely on this.

Only the first JSON value counts. Keys are case-insensitive, and the last of several equal keys
wins. Unknown keys and null values are ignored. A number must have its field's type: 100.0 is not an
integer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec

from harness.environments.toxiproxy.proxy import ApiError
from harness.environments.toxiproxy.stub import Toxic

_FLOAT32_MAX: Final = 3.4028234663852886e38
_INT64_MAX: Final = 2**63 - 1

Toxicity = Annotated[float, msgspec.Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]


class ProxyInput(msgspec.Struct):
    """The body of a request that creates a proxy. By default, the proxy is enabled."""

    name: str = ""
    listen: str = ""
    upstream: str = ""
    enabled: bool = True


class ProxyChange(msgspec.Struct):
    """The body of a request that changes a proxy. The name never changes."""

    name: str = ""
    listen: str | None = None
    upstream: str | None = None
    enabled: bool | None = None


class ToxicInput(msgspec.Struct):
    """The body of a request that creates a toxic. Its type decides which attributes are valid."""

    name: str = ""
    type: str = ""
    stream: str = "downstream"
    toxicity: Toxicity = 1.0
    attributes: dict[str, Any] = {}


class ToxicChange(msgspec.Struct):
    """The body of a request that changes a toxic's attributes or toxicity."""

    toxicity: Toxicity | None = None
    attributes: dict[str, Any] = {}


class AddressInput(msgspec.Struct):
    """The body of a request that creates a shared address (see `SharedAddress`)."""

    listen: str
    callers: str
    proxies: dict[str, str]
    hosts: dict[str, str]
    otherwise: str
    neutral: str


S = TypeVar("S", bound=msgspec.Struct)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _first_value(body: bytes) -> Any:
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise ApiError(400, "bad request body: EOF")
    try:
        value, _ = _DECODER.raw_decode(text)
        msgspec.json.encode(value)  # raises for an unpaired surrogate, which no answer can contain
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"bad request body: {error}") from error
    return value


def _struct(value: Any, kind: type[S]) -> S:
    if not isinstance(value, Mapping | None):
        raise ApiError(400, f"bad request body: Expected `object`, got `{type(value).__name__}`")
    names = {name.casefold(): name for name in kind.__struct_fields__}
    values = {key.casefold(): each for key, each in (value or {}).items() if each is not None}
    fields = {name: values[key] for key, name in names.items() if key in values}
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"bad request body: {error}") from error


def read_body(body: bytes, kind: type[S]) -> S:
    """Parse a request's body as a struct of type `kind`; raises `ApiError` if it is invalid."""
    return _struct(_first_value(body), kind)


def read_list(body: bytes, kind: type[S]) -> list[S]:
    """Parse a request's body as a list of structs; raises `ApiError` if it is invalid."""
    value = _first_value(body)
    if not isinstance(value, list | None):
        raise ApiError(400, f"bad request body: Expected `array`, got `{type(value).__name__}`")
    return [_struct(each, kind) for each in value or ()]


def attributes_of(kind: type[Toxic], given: Mapping[str, Any], *, before: Toxic | None) -> Toxic:
    """Return a toxic with the attributes `given`. Others are as in `before`, or zero.

    Raises `ApiError` for an invalid attribute.
    """
    old = {} if before is None else msgspec.to_builtins(before)
    new = {name: value for name, value in given.items() if value is not None}
    toxic = _struct({**old, **new}, kind)
    for value in msgspec.structs.astuple(toxic):
        if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
            raise ApiError(400, f"bad request body: {value} is not a 64-bit number")
    return toxic
