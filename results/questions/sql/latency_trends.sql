-- How long do acknowledged operations take on each day, and with each code? (nearest ranks)
-- A row with an empty `f` covers all kinds of operations together.
SELECT population, dimension, value, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension IN ('day', 'code') AND value <> ''
ORDER BY population, dimension, value, f
