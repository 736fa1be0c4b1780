"""Converts errors of the storage to one-line messages, and retries calls that failed.

A store is accessed in three ways (`deltalake`, `pyarrow.fs`, system calls), each with errors of its
own. `said_of` converts an error that a retry may cure to `AgainError`, and any other error to an
error with a clear message. `Patience` retries with random waits, up to a bound.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from harness.errors import HarnessError, InfrastructureError, UsageError, clipped, counted
from results.lake.log.refusals import RIGHTS_CODES, RefusedError

T = TypeVar("T")

CREDENTIALS: Final = (
    "invalidaccesskeyid", "invalid_access_key_id", "signaturedoesnotmatch", "accessdenied",
    "signature_does_not_match", "access_denied", "403 forbidden", "401 unauthorized",
    "http response code 403", "status 403", "invalidtoken", "expiredtoken", "invalid_client_token",
    "unrecognizedclient", "missing or invalid credential", "permission denied",
    "invalidclienttokenid",
)  # fmt: skip
NO_BUCKET: Final = ("nosuchbucket", "no_such_bucket", "bucket does not exist")
PLAIN_HTTP: Final = ("scheme is not allowed", "url scheme")
FULL: Final = ("no space left", "disk quota exceeded", "storage full", "storagefull")
FULL_CODES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_FOLDER_CODES: Final = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
NO_ANSWER: Final = ("client error (connect)", "curlcode: 6,", "curlcode: 7,")
BROKEN_LOG: Final = ("json error", "parquet error")
_SECRETS: Final = re.compile(r"(?<=://)[^/\s@]+(?::[^\s@]*)?(?=@)|(?<=\?)[^\s#'\"]+")
"""Matches secrets in URIs: users with passwords (which may contain slashes), and signed queries."""
_CODE: Final = re.compile(r"(?:os error|errno|os \{ code:) (\d+)")


class AgainError(InfrastructureError):
    """A call failed in a way that a retry may cure, or its effect is unknown."""


class NoSpaceError(InfrastructureError):
    """The disk is full."""


class ConflictError(AgainError):
    """Another writer committed first, so this commit did not happen."""


def require(module: str) -> Any:
    """Import a library of the extra `report`; raise `UsageError` if it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"a lake needs {module.partition('.')[0]}, which is not installed: "
            "pip install 'catalog-harness[report]'"
        ) from error


@contextlib.contextmanager
def troubles(uri: str) -> Iterator[None]:
    """Convert errors of the store at `uri` within the block by `said_of`."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise said_of(error, uri) from error


def said_of(error: Exception, uri: str) -> Exception:
    """Convert an error of a store to `AgainError` if a retry may cure it, else to a clear error."""
    text = _one_line(error)
    lower = text.lower()
    code = _code_of(error, lower)
    if code in FULL_CODES or any(word in lower for word in FULL):
        return NoSpaceError(
            f"no space is left at {uri}; free some space and append again (acknowledged runs are "
            "complete)"
        )
    if code in NO_FOLDER_CODES:
        return UsageError(f"{uri} cannot hold a lake ({clipped(text, 160)}); name another place")
    if any(word in lower for word in NO_BUCKET):
        return UsageError(f"the bucket of {uri!r} does not exist; create it, or name another")
    if code in RIGHTS_CODES or ("permission denied" in lower and "://" not in uri):
        return RefusedError(
            f"{uri} refuses access ({clipped(text, 160)}); check the folder's rights"
        )
    if any(word in lower for word in CREDENTIALS):
        return RefusedError(
            f"{uri} refuses access ({clipped(text, 160)}); check the credentials "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and their rights"
        )
    if any(word in lower for word in PLAIN_HTTP):
        return UsageError(f"the endpoint of {uri} is plain HTTP: set AWS_ALLOW_HTTP=true")
    if any(word in lower for word in BROKEN_LOG):
        return InfrastructureError(
            f"the log of {uri} is damaged ({clipped(text, 160)}); restore its folder"
        )
    if isinstance(error, (TypeError, AttributeError, LookupError, AssertionError)):
        return error
    if isinstance(error, ValueError):  # Arrow's error for a file that is not Parquet
        return InfrastructureError(
            f"a file of {uri} cannot be read ({clipped(text, 160)}); see `harness lake check`"
        )
    if any(word in lower for word in NO_ANSWER):
        return AgainError(f"no answer ({clipped(text, 240)}); is AWS_ENDPOINT_URL right?")
    return AgainError(clipped(text, 300))


def _code_of(error: Exception, text: str) -> int | None:
    """Return the operating system's error number, if any. Rust and Arrow put it in the text."""
    code = getattr(error, "errno", None)
    if code is None and (match := _CODE.search(text)):
        code = int(match[1])
    return code


def _one_line(error: Exception) -> str:
    """Return an error's text without secrets, colours, arrows and line breaks."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).replace("\u21b3", " ")
    plain = re.sub(r"\s0: <unknown>.*", "", plain, flags=re.DOTALL)
    return without_secrets(" ".join(plain.split())) or type(error).__name__


def without_secrets(text: str) -> str:
    """Remove users, passwords and (signed) queries from all URIs in a text."""
    return _SECRETS.sub("...", text)


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds for the retries of a call. Random waits keep writers from retrying in step."""

    attempts_max: int = 200
    total_s: float = 300.0
    wait_s_max: float = 2.0
    sleep: Callable[[float], None] = time.sleep

    def call(self, what: str, function: Callable[[], T]) -> T:
        """Call `function`, and call it again after each `AgainError`; return its result.

        Raises `InfrastructureError` when a bound is reached. It is then unknown whether the last
        attempt had an effect. `what` names the action in the error message.
        """
        tenacity = require("tenacity")
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(AgainError),
            stop=tenacity.stop_after_attempt(self.attempts_max)
            | tenacity.stop_after_delay(self.total_s),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=self.wait_s_max),
            sleep=self.sleep,
        )
        try:
            answer: T = retrying(function)
        except tenacity.RetryError as error:
            last = error.last_attempt
            raise InfrastructureError(
                f"cannot {what}, after {counted(last.attempt_number, 'try', 'tries')}: "
                f"{last.exception()}"
            ) from last.exception()
        return answer
