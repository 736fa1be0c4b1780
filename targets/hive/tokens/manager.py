"""Issues, renews, cancels and verifies delegation tokens.

The code follows Hive's `TokenStoreDelegationTokenSecretManager`.

* A token's identifier has its owner, its renewer, its issue date, its maximum age, and the number
  of the master key that made its password. Each metastore has its own current key and replaces it
  periodically. A key is kept until all its tokens have passed their maximum age.
* To verify a token, a metastore compares it with the stored password; this needs no key. To renew a
  token, it computes the password again. If it does not have the key with the token's number, it
  first reads the keys of all metastores.
* A periodic task removes tokens that have expired by the metastore's own clock.
* In the profile `strict`, a renewal is one atomic step. Hive removes the token and then adds it
  again. If the second step fails, the token is lost. If a cancellation comes between the two steps,
  the second step undoes it.

As in Hive, an expired token may still be renewed until it is removed, and cancelling a token that
does not exist is not an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from typing import Final

import msgspec

from harness.env import Env
from targets.hive.api import (
    ACCESS_CONTROL,
    INVALID_OBJECT,
    INVALID_TOKEN,
    Authenticate,
    CancelDelegationToken,
    GetDelegationToken,
    MetastoreError,
    RenewDelegationToken,
    TokenCall,
)
from targets.hive.bugs import Bug
from targets.hive.metastore.events import now_ms
from targets.hive.tokens.store import MasterKey, StoredToken, TokenStore

_USER: Final = re.compile(r"[\w.@-]+", re.ASCII)
_SECRET_BYTES: Final = 20
_FIELDS: Final = 6


class TokenTimes(msgspec.Struct, frozen=True):
    """Lifetimes of delegation tokens and master keys, in ms."""

    max_age_ms: int
    renew_ms: int  # the time from issue or renewal to expiry
    key_ms: int  # lifetime of a metastore's current key
    scan_ms: int  # time between two scans for expired tokens


DEFAULT_TIMES: Final = TokenTimes(7 * 86_400_000, 86_400_000, 86_400_000, 3_600_000)


class _Identifier(msgspec.Struct, frozen=True):
    owner: str
    renewer: str
    issued_ms: int
    max_ms: int
    sequence: int
    key: int

    def __str__(self) -> str:
        return ":".join(map(str, msgspec.structs.astuple(self)))


class TokenManager:
    """The part of one metastore that handles delegation tokens."""

    def __init__(
        self, env: Env, store: TokenStore, times: TokenTimes, bugs: frozenset[Bug]
    ) -> None:
        self._env = env
        self._store = store
        self._times = times
        self._bugs = bugs
        self._sequence = 0
        self._keys: dict[int, MasterKey] = {}  # all keys that the store had when last read
        self._current: tuple[int, MasterKey] | None = None
        self._rolled_ms = 0
        self._rolling = asyncio.Lock()

    async def do(self, call: TokenCall) -> str | int | None:
        """Execute one call about a token and return its answer. Raises `MetastoreError`."""
        match call:
            case GetDelegationToken():
                return await self._issue(call.owner, call.renewer)
            case RenewDelegationToken():
                return await self._renew(call.token, call.user)
            case CancelDelegationToken():
                ident, _ = _parse(call.token)
                await self._store.remove(str(ident))
                return None
            case Authenticate():
                return await self._verify(call.token)

    async def keep(self) -> None:
        """Replace master keys and remove expired tokens periodically, until cancelled."""
        begin = asyncio.get_running_loop().time()
        rolls = 1
        while True:
            await asyncio.sleep(self._times.scan_ms / 1000)
            passed_ms = (asyncio.get_running_loop().time() - begin) * 1000
            try:
                if passed_ms >= rolls * self._times.key_ms:
                    rolls = int(passed_ms // self._times.key_ms) + 1
                    async with self._rolling:
                        await self._roll()
                await self._remove_expired()
            except MetastoreError:
                continue  # the store is unreachable: try again in the next round

    # --- calls -------------------------------------------------------------------------------

    async def _issue(self, owner: str, renewer: str) -> str:
        for user in (owner, renewer):
            if not _USER.fullmatch(user):
                raise MetastoreError(INVALID_OBJECT, f"{user!r} is not the name of a user")
        number, key = await self._current_key()
        issued_ms = now_ms(self._env)
        self._sequence += 1
        ident = _Identifier(
            owner, renewer, issued_ms, issued_ms + self._times.max_age_ms, self._sequence, number
        )
        password = _password(key, ident)
        renew_ms = min(ident.max_ms, issued_ms + self._times.renew_ms)
        await self._store.add(str(ident), StoredToken(renew_ms, password))
        return f"{ident}:{password}"

    async def _verify(self, token: str) -> str:
        ident, password = _parse(token)
        stored = await self._store.get(str(ident))
        if stored is None:
            raise MetastoreError(INVALID_TOKEN, f"token expired or does not exist: {ident}")
        if stored.password != password:
            raise MetastoreError(INVALID_TOKEN, "DIGEST-MD5: digest response format violation")
        if stored.renew_ms < now_ms(self._env):
            raise MetastoreError(INVALID_TOKEN, f"token ({ident}) is expired")
        return ident.owner

    async def _renew(self, token: str, user: str) -> int:
        ident, password = _parse(token)
        stored = await self._store.get(str(ident))
        if stored is None:
            raise MetastoreError(INVALID_TOKEN, f"token does not exist: {ident}")
        if ident.key not in self._keys:
            self._keys = dict(await self._store.keys())
        now = now_ms(self._env)
        if ident.max_ms < now:
            raise MetastoreError(INVALID_TOKEN, f"{user} tried to renew an expired token ({ident})")
        if user != ident.renewer:
            message = f"{user} tries to renew a token ({ident}) with renewer {ident.renewer}"
            raise MetastoreError(ACCESS_CONTROL, message)
        key = self._keys.get(ident.key)
        if key is None:
            raise MetastoreError(INVALID_TOKEN, f"Unable to find master key for keyId={ident.key}")
        if _password(key, ident) != password:
            message = f"{user} is trying to renew a token ({ident}) with wrong password"
            raise MetastoreError(ACCESS_CONTROL, message)
        renewed = StoredToken(min(ident.max_ms, now + self._times.renew_ms), password)
        if Bug.TOKEN_RENEW_GAP in self._bugs:
            await self._store.remove(str(ident))
            await self._store.add(str(ident), renewed)
        elif not await self._store.replace(str(ident), renewed):
            raise MetastoreError(INVALID_TOKEN, f"token does not exist: {ident}")
        return renewed.renew_ms

    # --- keys --------------------------------------------------------------------------------

    async def _current_key(self) -> tuple[int, MasterKey]:
        """Return the current key and its number. The key outlives all its future tokens."""
        async with self._rolling:
            age_ms = now_ms(self._env) - self._rolled_ms
            if self._current is None or age_ms > self._times.key_ms:
                return await self._roll()
            return self._current

    async def _roll(self) -> tuple[int, MasterKey]:
        now = now_ms(self._env)
        keys = dict(await self._store.keys())
        lasts_ms = self._times.key_ms + self._times.max_age_ms
        new = MasterKey(now + lasts_ms, self._env.random.randbytes(_SECRET_BYTES).hex())
        number = await self._store.add_key(new)
        self._current, self._rolled_ms = (number, new), now
        keys[number] = new
        expired = [old for old, key in keys.items() if key.expires_ms < now]
        self._keys = {kept: key for kept, key in keys.items() if kept not in expired}
        for old in expired:
            await self._store.remove_key(old)
        self._env.event("master-key-rolled", key=number, removed=len(expired))
        return number, new

    async def _remove_expired(self) -> None:
        removed = 0
        for text, stored in (await self._store.all()).items():
            # If the token was renewed meanwhile, it differs from `stored` and remains.
            if stored.renew_ms < now_ms(self._env):
                removed += await self._store.remove(text, only=stored)
        if removed:
            self._env.event("tokens-removed", count=removed)


def _password(key: MasterKey, ident: _Identifier) -> str:
    return hmac.new(key.secret.encode(), str(ident).encode(), hashlib.sha1).hexdigest()


def _identifier(text: str) -> _Identifier:
    parts = text.split(":")
    if len(parts) != _FIELDS:
        raise ValueError(f"{len(parts)} fields, not {_FIELDS}")
    return _Identifier(parts[0], parts[1], *map(int, parts[2:]))


def _parse(token: str) -> tuple[_Identifier, str]:
    text, _, password = token.rpartition(":")
    try:
        return _identifier(text), password
    except ValueError as error:
        raise MetastoreError(INVALID_TOKEN, f"{token!r} is not a token: {error}") from error
