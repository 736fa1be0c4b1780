-- How long do acknowledged operations take, by kind and one more dimension? In ns: the middle of a
-- bucket (harness.store.buckets).
-- Percentiles are nearest ranks: p90 is the least value that at least 90 % of all do not exceed.
-- A row with an empty `f` covers all kinds of operations together, by day and code.
-- A base table: later files read it under the name `percentiles`, one dimension each.
WITH stacked AS (
    SELECT population, dimension, value, f, lat_bucket, n FROM latency_cells
    UNION ALL
    SELECT population, dimension, value, '', lat_bucket, n FROM latency_cells
    WHERE dimension IN ('day', 'code')
),
counted AS (
    SELECT population, dimension, value, f,
           CAST(lat_bucket AS BIGINT) AS bucket,
           CAST((lat_bucket >> 5) - 1 AS INT) AS shift,
           CAST(SUM(n) AS BIGINT) AS n
    FROM stacked
    GROUP BY population, dimension, value, f, lat_bucket
),
timed AS (
    SELECT population, dimension, value, f, n,
           CASE WHEN bucket < 32 THEN bucket
                ELSE (((bucket & 31) + 32) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
           END AS ns
    FROM counted
),
ranked AS (
    SELECT population, dimension, value, f, ns,
           CAST(SUM(n) OVER (
               PARTITION BY population, dimension, value, f ORDER BY ns
           ) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY population, dimension, value, f) AS BIGINT) AS total
    FROM timed
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
