-- How long do acknowledged operations take, by run and kind? In ns: the middle of a bucket
-- (harness.store.buckets), by nearest ranks.
WITH counted AS (
    SELECT o.run, o.f, o.lat_bucket, CAST(SUM(o.n) AS BIGINT) AS n
    FROM ops o
    JOIN slowest s ON s.run = o.run AND s.f = o.f
    WHERE o.type = 'ok' AND o.lat_bucket IS NOT NULL
    GROUP BY o.run, o.f, o.lat_bucket
),
parts AS (
    SELECT run, f, n,
           CAST(lat_bucket AS BIGINT) AS bucket,
           CAST((lat_bucket >> 5) - 1 AS INT) AS shift
    FROM counted
),
timed AS (
    SELECT run, f, n,
           CASE WHEN bucket < 32 THEN bucket
                ELSE (((bucket & 31) + 32) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
           END AS ns
    FROM parts
),
ranked AS (
    SELECT run, f, ns,
           CAST(SUM(n) OVER (PARTITION BY run, f ORDER BY ns) AS BIGINT) AS upto,
           CAST(SUM(n) OVER (PARTITION BY run, f) AS BIGINT) AS total
    FROM timed
),
percentiles_of_runs AS (
    SELECT run, f,
           MAX(total) AS ok,
           MIN(CASE WHEN upto * 1000 >= total * 500 THEN ns END) AS p50_ns,
           MIN(CASE WHEN upto * 1000 >= total * 950 THEN ns END) AS p95_ns,
           MIN(CASE WHEN upto * 1000 >= total * 990 THEN ns END) AS p99_ns,
           MIN(CASE WHEN upto * 1000 >= total * 999 THEN ns END) AS p999_ns,
           MAX(ns) AS max_ns
    FROM ranked
    GROUP BY run, f
)
SELECT j.population, p.run, p.f, p.ok, p.p50_ns, p.p95_ns, p.p99_ns, p.p999_ns, p.max_ns
FROM percentiles_of_runs p
JOIN judged j ON j.run = p.run
ORDER BY p.run, p.f
