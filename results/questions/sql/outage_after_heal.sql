-- If a fault was healed during an outage, how long did the outage continue? (nearest ranks)
-- In ns: the middle of a bucket (harness.store.buckets), except for the longest.
WITH ranked AS (
    SELECT population, nemesis, kind, ns, n, most_ns,
           CAST(SUM(CASE WHEN ns > 0 THEN n ELSE 0 END) OVER (
               PARTITION BY population, nemesis, kind ORDER BY COALESCE(ns, -1)
           ) AS BIGINT) AS upto,
           CAST(SUM(CASE WHEN ns > 0 THEN n ELSE 0 END) OVER (
               PARTITION BY population, nemesis, kind
           ) AS BIGINT) AS total
    FROM outage_cells
)
SELECT population, nemesis, kind,
       CAST(SUM(n) AS BIGINT) AS heals,
       CAST(SUM(CASE WHEN ns > 0 THEN n ELSE 0 END) AS BIGINT) AS in_outage,
       CAST(SUM(CASE WHEN ns IS NULL THEN n ELSE 0 END) AS BIGINT) AS never,
       MIN(CASE WHEN ns > 0 AND upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MAX(CASE WHEN ns > 0 THEN most_ns END) AS max_ns
FROM ranked
GROUP BY population, nemesis, kind
ORDER BY population, nemesis, kind
