-- How long do acknowledged operations take, by kind and one more dimension?
-- Percentiles are nearest ranks: the least value that at least so many of all do not exceed.
-- A base table: later files read it under the name `percentiles`, one dimension each.
WITH named AS (
    SELECT l.run, l.phase, l.active, COALESCE(l.node, '') AS node, COALESCE(j.label, '') AS label,
           l.f, l.ns, l.n
    FROM latencies l
    LEFT JOIN judged j ON j.run = l.run
),
stacked AS (
    SELECT 'f' AS dimension, '' AS value, f, ns, n FROM named
    UNION ALL SELECT 'active', active, f, ns, n FROM named
    UNION ALL SELECT 'phase', phase, f, ns, n FROM named
    UNION ALL SELECT 'node', node, f, ns, n FROM named
    UNION ALL SELECT 'run', run, f, ns, n FROM named
    UNION ALL SELECT 'label', label, f, ns, n FROM named
),
counted AS (
    SELECT dimension, value, f, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM stacked
    GROUP BY dimension, value, f, ns
),
ranked AS (
    SELECT dimension, value, f, ns,
           CAST(SUM(n) OVER (PARTITION BY dimension, value, f ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY dimension, value, f) AS BIGINT) AS total
    FROM counted
)
SELECT dimension, value, f,
       MAX(total) AS ok,
       MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
       MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
       MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
       MAX(ns) AS max_ns
FROM ranked
GROUP BY dimension, value, f
ORDER BY dimension, value, f
