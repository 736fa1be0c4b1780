"""Answers of HTTP/1.1 servers, read from a stream (RFC 9112): all that our clients need of it."""

from __future__ import annotations

import asyncio
from typing import Final

REPLY_BYTES_MAX: Final = 16 * 1024 * 1024


async def read_reply(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, and body of the next answer.

    Raises `ValueError` for an invalid or too long answer, and `asyncio.IncompleteReadError`.
    """
    status, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
    return status, headers, await _read_body(reader, status, headers)


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    status_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = status_line.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ValueError(f"{status_line[:100]!r} is not an HTTP answer")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if parts[0] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return int(parts[1]), headers


async def _read_body(reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> bytes:
    """The body by its length, to the end of the stream, or in chunks as Go sends longer ones."""
    if status in {204, 304}:
        return b""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        if "content-length" not in headers and headers.get("connection", "").lower() == "close":
            return await _read_to_end(reader)
        return await reader.readexactly(_checked_size(int(headers.get("content-length", "0"))))
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        _checked_size(len(body) + size)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return body
        body += piece[:-2]


def _checked_size(size: int) -> int:
    if not 0 <= size <= REPLY_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes; the limit is {REPLY_BYTES_MAX}")
    return size


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while piece := await reader.read(65536):
        body += piece
        _checked_size(len(body))
    return body
