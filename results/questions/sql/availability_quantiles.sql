-- How long is the target unavailable in a run, and in how many runs never? (nearest ranks over runs)
WITH counted AS (
    SELECT population, kind, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM availability_cells
    GROUP BY population, kind, ns
),
ranked AS (
    SELECT population, kind, ns, n,
           CAST(SUM(n) OVER (PARTITION BY population, kind ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY population, kind) AS BIGINT) AS total
    FROM counted
)
SELECT population, kind,
       MAX(total) AS runs,
       CAST(SUM(CASE WHEN ns = 0 THEN n ELSE 0 END) AS BIGINT) AS runs_without,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY population, kind
ORDER BY population, kind
