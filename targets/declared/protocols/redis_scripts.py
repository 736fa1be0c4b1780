"""Scripts of Redis for leases and logs."""

from __future__ import annotations

from typing import Final

__all__ = ["LEASE", "POLL"]

LEASE: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
return redis.call('INCR', KEYS[1] .. ':token')
"""
# A message's offset is the length of the list up to and including it, which RPUSH returns.
POLL: Final = """
local start = math.max(tonumber(ARGV[1]) - 1, 0)
local all = redis.call('LRANGE', KEYS[1], start, start + 99)
for i, value in ipairs(all) do all[i] = '[' .. (start + i) .. ',' .. value .. ']' end
return all
"""
