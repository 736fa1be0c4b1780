-- How long do acknowledged operations take, by label and kind?
-- Percentiles are nearest ranks: the least value that at least so many of all do not exceed.
WITH counted AS (
    SELECT COALESCE(j.label, '') AS label, l.f, l.ns, CAST(SUM(l.n) AS BIGINT) AS n
    FROM latencies l
    JOIN judged j ON j.run = l.run
    GROUP BY COALESCE(j.label, ''), l.f, l.ns
),
ranked AS (
    SELECT label, f, ns,
           CAST(SUM(n) OVER (PARTITION BY label, f ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY label, f) AS BIGINT) AS total
    FROM counted
)
SELECT label, f,
       MAX(total) AS ok,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY label, f
ORDER BY label, f
