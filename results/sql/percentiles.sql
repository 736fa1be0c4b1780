-- How long do acknowledged operations take, by kind and one more dimension?
-- Percentiles are nearest ranks: the least value that at least so many of all do not exceed.
-- A base table: later files read it under the name `percentiles`, one dimension each.
WITH named AS (
    SELECT j.population, l.run, l.phase, l.active, COALESCE(l.node, '') AS node, l.f, l.ns, l.n
    FROM latencies l
    JOIN judged j ON j.run = l.run
),
stacked AS (
    SELECT population, 'f' AS dimension, '' AS value, f, ns, n FROM named
    UNION ALL SELECT population, 'active', active, f, ns, n FROM named
    UNION ALL SELECT population, 'phase', phase, f, ns, n FROM named
    UNION ALL SELECT population, 'node', node, f, ns, n FROM named
    UNION ALL SELECT population, 'run', run, f, ns, n FROM named
),
counted AS (
    SELECT population, dimension, value, f, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM stacked
    GROUP BY population, dimension, value, f, ns
),
ranked AS (
    SELECT population, dimension, value, f, ns,
           CAST(SUM(n) OVER (
               PARTITION BY population, dimension, value, f ORDER BY ns
           ) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY population, dimension, value, f) AS BIGINT) AS total
    FROM counted
)
SELECT population, dimension, value, f,
       MAX(total) AS ok,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY population, dimension, value, f
ORDER BY population, dimension, value, f
