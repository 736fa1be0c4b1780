-- For how long was each run unavailable, as histograms over runs that merge like latencies?
-- `ns` is the middle of a bucket as of latencies (harness.store.buckets); 0: never unavailable.
WITH kinds AS (
    SELECT 'mutation' AS kind
    UNION ALL SELECT 'read' AS kind
),
down AS (
    SELECT run, kind, CAST(SUM(end_ns - start_ns) AS BIGINT) AS ns
    FROM unavailability
    GROUP BY run, kind
),
each AS (
    SELECT j.population, j.day, j.code, k.kind, COALESCE(d.ns, 0) AS ns
    FROM judged j
    CROSS JOIN kinds k
    LEFT JOIN down d ON d.run = j.run AND d.kind = k.kind
),
measured AS (
    SELECT population, day, code, kind, ns,
           CAST(CASE WHEN ns < 32 THEN 0 ELSE LENGTH(BIN(ns)) - 6 END AS INT) AS shift
    FROM each
)
SELECT population, day, code, kind,
       ((ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1) AS ns,
       COUNT(*) AS n
FROM measured
GROUP BY population, day, code, kind, ((ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
