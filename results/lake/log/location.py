"""The location of a lake, which is a folder or a prefix in an object store.

`pyarrow.fs` reads, writes and lists Parquet files; `deltalake` owns the logs of the tables
(`results.lake.log.delta`). Both get the same endpoint and credentials: the environment's `AWS_*`,
overridden by the caller's storage options.

No log ever names an incomplete file. Object stores show a file only once its upload is complete. On
disks, a file is written under a temporary name and then renamed. Every file name is used only once,
so a late upload cannot change a file that a log names.

Acknowledged data survive a crash of the process that wrote them. On local disks, a power failure
can lose the last seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyarrow.fs import FileSystem

from harness.errors import UsageError, shown
from results.lake.log.files import LOG_FOLDER
from results.lake.log.storage_errors import troubles, without_secrets

REMOTE: Final = ("s3", "gs", "abfs", "abfss")
"""URI schemes of object stores that `deltalake` and `pyarrow.fs` both accept."""
S3_ALIASES: Final = ("s3a", "s3n")
CONDITIONAL_PUT: Final = "aws_conditional_put"
PART: Final = ".part"
S3_ATTEMPTS_MAX: Final = 8
"""The maximum number of attempts of a request to S3. Waits double from 25 ms on, 3 s in all."""
CONNECT_S: Final = 10.0
REQUEST_S: Final = 60.0
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
DEFAULTS: Final[Mapping[str, str]] = {
    CONDITIONAL_PUT: "etag",  # without it, two writers could both commit the same version
    "max_retries": "8",
    "retry_timeout": "60s",
    "timeout": "60s",
    "connect_timeout": "10s",
}


class Stored(NamedTuple):
    """A file in the store, whether a log contains it or not."""

    name: str
    size_bytes: int


class Place:
    """The root of a lake: a folder or an object store prefix, with one folder per table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Parse a URI; raise `UsageError` if no lake can be at this URI."""
        _refuse_unclear(uri)
        parts = urlsplit(uri)
        scheme = parts.scheme if "://" in uri else ""
        self.local = scheme in {"", "file"}
        self.options: dict[str, str] = {}
        if self.local:
            folder = Path(unquote(parts.path) if scheme else uri).expanduser().absolute()
            self.uri = str(folder)
            with troubles(self.uri):
                above = next(path for path in (folder, *folder.parents) if path.exists())
            if not above.is_dir():
                raise UsageError(f"{str(above)!r} is a file, not a folder; name another place")
        else:
            name = "s3" if scheme in S3_ALIASES else scheme
            self.uri = f"{name}://{parts.netloc}/{parts.path.strip('/')}"
            self.options = {**DEFAULTS, **_options(os.environ, prefix="aws_")}
        _refuse_ambiguous(self.uri, local=self.local)
        self.options |= _options(storage_options or {})
        if self.options.get(CONDITIONAL_PUT, "").lower() == "disabled":
            raise UsageError(
                f"{CONDITIONAL_PUT} is disabled, so one of two concurrent writers would lose rows; "
                "leave this option out"
            )
        with troubles(self.uri):
            self.files: FileSystem = self._filesystem()

    def _filesystem(self) -> FileSystem:
        if self.local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        if not self.uri.startswith("s3://"):
            filesystem, path = fs.FileSystem.from_uri(self.uri)
            return fs.SubTreeFileSystem(path, filesystem)
        options = self.options
        endpoint = options.get("aws_endpoint_url") or options.get("aws_endpoint")
        more: dict[str, Any] = {}
        if endpoint:
            parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
            more = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        if "aws_access_key_id" in options:
            more |= {
                "access_key": options["aws_access_key_id"],
                "secret_key": options.get("aws_secret_access_key", ""),
                "session_token": options.get("aws_session_token"),
            }
        region = options.get("aws_region") or options.get("aws_default_region") or "us-east-1"
        store = fs.S3FileSystem(
            region=region,
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            # The standard strategy allows 100 retries per process, and adds some for each success.
            # Arrow never reports successes to it, so retries would end after 100.
            retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=S3_ATTEMPTS_MAX),
            allow_delayed_open=True,  # one request per small file rather than three
            **more,
        )
        return fs.SubTreeFileSystem(self.uri.removeprefix("s3://"), store)

    def uri_of(self, table: str, name: str = "") -> str:
        """Return the address of a table, or of the file `name` of the table."""
        return "/".join(part for part in (self.uri, table, name) if part)

    @contextlib.contextmanager
    def writing(self, table: str, name: str) -> Iterator[Any]:
        """Open a stream to a new file. The file gets its name at the end of the block."""
        path = f"{table}/{name}"
        under = f"{path}{PART}" if self.local else path
        with troubles(self.uri):
            try:
                with self.files.open_output_stream(under) as sink:
                    yield sink
                if self.local:
                    self.files.move(under, path)
            except Exception:
                if self.local:  # delete the partial file, since the disk may be full
                    with contextlib.suppress(OSError):
                        self.files.delete_file(under)
                raise

    def read(self, table: str, name: str, columns: list[str]) -> pa.Table:
        """Read some columns of one file of a table."""
        path = f"{table}/{name}"
        return pq.read_table(path, columns=columns, filesystem=self.files, partitioning=None)

    def listed(self, table: str) -> list[Stored]:
        """List all files in a table's folder, except the table's log."""
        with troubles(self.uri):
            infos = self.files.get_file_info(fs.FileSelector(table, allow_not_found=True))
        return [
            Stored(info.base_name, info.size) for info in infos if info.type == fs.FileType.File
        ]

    def entries(self) -> list[str]:
        """Return the names directly below the root, sorted."""
        with troubles(self.uri):
            infos = self.files.get_file_info(fs.FileSelector("", allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def tables(self) -> list[str]:
        """Return the names of the folders with a Delta log, sorted."""
        with troubles(self.uri):
            infos = self.files.get_file_info(fs.FileSelector("", allow_not_found=True))
            names = sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)
            logs = self.files.get_file_info([f"{name}/{LOG_FOLDER}" for name in names])
        there = [info.type == fs.FileType.Directory for info in logs]
        return [name for name, is_table in zip(names, there, strict=True) if is_table]

    def empty_folders(self) -> list[str]:
        """Return the names of empty folders, which a killed creation of a lake may leave."""
        with troubles(self.uri):
            infos = self.files.get_file_info(fs.FileSelector("", allow_not_found=True))
            return [
                info.base_name
                for info in infos
                if info.type == fs.FileType.Directory
                and not self.files.get_file_info(fs.FileSelector(info.path))
            ]

    def delete(self, table: str, name: str) -> None:
        """Remove one file. An absent file is not an error."""
        with troubles(self.uri), contextlib.suppress(FileNotFoundError):
            self.files.delete_file(f"{table}/{name}")

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def _refuse_unclear(uri: str) -> None:
    """Raise `UsageError` for a URI that leads nowhere, or probably not to the intended place."""
    if not uri.strip():
        raise UsageError("the lake's URI is empty; give a folder, or s3://BUCKET/PREFIX")
    if not uri.isprintable():
        raise UsageError(f"the lake's URI {shown(uri)} has invisible characters; remove them")
    example = "give a folder, or s3://BUCKET/PREFIX"
    scheme, colon, rest = uri.partition(":")
    schemes = {"file", *REMOTE, *S3_ALIASES}
    if "://" not in uri:
        if colon and (scheme.lower() in schemes or (rest.startswith("/") and "/" not in scheme)):
            raise UsageError(f"{uri!r} has no // behind its scheme; {example}")
        return
    original, uri = uri, without_secrets(uri)
    if scheme.lower() not in schemes:
        raise UsageError(
            f"{uri!r}: a lake must be in a folder, or at {', '.join(REMOTE)}, not at "
            f"{scheme}://; {example}"
        )
    try:
        parts = urlsplit(original)
    except ValueError as error:
        raise UsageError(f"{uri!r} is not a URI ({error}); {example}") from error
    if parts.query or parts.fragment:
        raise UsageError(f"{uri!r} has ? or # in it; give the prefix without them")
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            raise UsageError(f"{uri!r} names a machine; write file:///FOLDER")
    elif not parts.netloc or not parts.path.strip("/"):
        raise UsageError(
            f"{uri!r} names no place for a lake; give a bucket and a prefix in it, such as "
            "s3://BUCKET/lake"
        )
    elif parts.scheme in {"s3", *S3_ALIASES} and not re.fullmatch(r"[\w.-]+", parts.netloc):
        raise UsageError(
            f"{uri!r} has {urlsplit(uri).netloc!r} as its bucket; put a server into "
            "AWS_ENDPOINT_URL, and keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


def _refuse_ambiguous(uri: str, *, local: bool) -> None:
    """Raise `UsageError` for a location that `deltalake` and Arrow would interpret differently.

    Only `deltalake` decodes escapes in a name and resolves `..` in a prefix. So the log would be in
    another place than its files, perhaps in another lake.
    """
    if match := _ESCAPE.search(uri):
        raise UsageError(
            f"{uri!r} has {match[0]!r} in it, which Delta reads as another character; name a place "
            f"without {match[0]!r}"
        )
    if local and "\\" in uri:
        raise UsageError(
            f"{uri!r} has a backslash in it, which Delta reads as a slash; name another folder"
        )
    if not local and not {"", ".", ".."}.isdisjoint(uri.split("/")[3:]):
        raise UsageError(
            f"{uri!r} has an empty part, . or .. in its prefix, which an object store does not "
            "resolve; give the resolved prefix"
        )


def _options(given: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    return {name.lower(): value for name, value in given.items() if name.lower().startswith(prefix)}
