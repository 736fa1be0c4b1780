-- The longest acknowledged operation of each run and kind, the longest of all first.
-- A base table: later files read it under the name `slowest`; for a lake it has only the first rows.
SELECT run, f, MAX(lat_bucket) AS lat_bucket
FROM ops
WHERE type = 'ok' AND lat_bucket IS NOT NULL
GROUP BY run, f
ORDER BY lat_bucket DESC, run, f
