-- Latencies of acknowledged operations in ns: the middle of their bucket (harness.store.buckets).
-- A base table: later files read it under the name `latencies`.
WITH parts AS (
    SELECT run, f, node, phase, active, n,
           CAST(lat_bucket AS BIGINT) AS bucket,
           CAST((lat_bucket >> 5) - 1 AS INT) AS shift
    FROM ops
    WHERE type = 'ok' AND lat_bucket IS NOT NULL
)
SELECT run, f, node, phase, active,
       CASE WHEN bucket < 32 THEN bucket
            ELSE (((bucket & 31) + 32) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
       END AS ns,
       CAST(SUM(n) AS BIGINT) AS n
FROM parts
GROUP BY run, f, node, phase, active, bucket, shift
ORDER BY run, f, COALESCE(node, ''), phase, active, ns
