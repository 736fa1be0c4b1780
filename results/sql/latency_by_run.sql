-- How long do acknowledged operations take, by run and kind?
-- Percentiles are nearest ranks: the least value that at least so many of all do not exceed.
WITH counted AS (
    SELECT run, f, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM latencies
    GROUP BY run, f, ns
),
ranked AS (
    SELECT run, f, ns,
           CAST(SUM(n) OVER (PARTITION BY run, f ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY run, f) AS BIGINT) AS total
    FROM counted
)
SELECT run, f,
       MAX(total) AS ok,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY run, f
ORDER BY run, f
