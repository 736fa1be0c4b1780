-- How long after a heal does an operation of each kind succeed again? (nearest ranks)
-- `waited` counts from the first operation in progress after the heal, since clients may try later.
-- `untried`: heals after which no client tried; `never`: heals after which clients tried in vain.
-- In ns: the middle of a bucket (harness.store.buckets), except for the longest.
WITH ranked AS (
    SELECT population, nemesis, f, counted, ns, n, untried, never, most_ns,
           CAST(SUM(CASE WHEN ns IS NOT NULL THEN n ELSE 0 END) OVER (
               PARTITION BY population, nemesis, f, counted ORDER BY COALESCE(ns, -1)
           ) AS BIGINT) AS upto,
           CAST(SUM(CASE WHEN ns IS NOT NULL THEN n ELSE 0 END) OVER (
               PARTITION BY population, nemesis, f, counted
           ) AS BIGINT) AS total
    FROM recovery_cells
)
SELECT population, nemesis, f,
       CAST(SUM(CASE WHEN counted = 'waited' THEN n ELSE 0 END) AS BIGINT) AS heals,
       CAST(SUM(untried) AS BIGINT) AS untried,
       CAST(SUM(never) AS BIGINT) AS never,
       MIN(CASE WHEN counted = 'waited' AND upto * 1000 >= total * 500 THEN ns END) AS waited_p50_ns,
       MIN(CASE WHEN counted = 'waited' AND upto * 1000 >= total * 950 THEN ns END) AS waited_p95_ns,
       MAX(CASE WHEN counted = 'waited' THEN most_ns END) AS waited_max_ns,
       MIN(CASE WHEN counted = 'ok' AND upto * 1000 >= total * 500 THEN ns END) AS ok_p50_ns,
       MAX(CASE WHEN counted = 'ok' THEN most_ns END) AS ok_max_ns
FROM ranked
GROUP BY population, nemesis, f
ORDER BY population, nemesis, f
