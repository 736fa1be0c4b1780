-- How long do acknowledged operations take, by kind and by the node that answered?
-- Percentiles are nearest ranks: the least value that at least so many of all do not exceed.
WITH counted AS (
    SELECT COALESCE(node, '') AS node, f, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM latencies
    GROUP BY COALESCE(node, ''), f, ns
),
ranked AS (
    SELECT node, f, ns,
           CAST(SUM(n) OVER (PARTITION BY node, f ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY node, f) AS BIGINT) AS total
    FROM counted
)
SELECT node, f,
       MAX(total) AS ok,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY node, f
ORDER BY node, f
