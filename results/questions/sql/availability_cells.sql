-- How long was the target unavailable in each run? Histograms over runs, which add up like latencies.
-- `ns` is the middle of a latency bucket (harness.store.buckets); 0: the target was always available.
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
