-- How long after heals did operations succeed again? Histograms, which add up like latencies.
-- `counted` tells the start of the time: the first operation in progress (`waited`), or the heal (`ok`).
-- `ns` is the middle of a latency bucket (harness.store.buckets); null: no operation succeeded.
WITH each AS (
    SELECT j.population, r.nemesis, r.f, r.first_ok_ns AS ok_ns, r.first_try_ns AS try_ns
    FROM recoveries r
    JOIN judged j ON j.run = r.run
),
stacked AS (
    SELECT population, nemesis, f, 'waited' AS counted, ok_ns - try_ns AS ns,
           CASE WHEN try_ns IS NULL THEN 1 ELSE 0 END AS untried,
           CASE WHEN try_ns IS NOT NULL AND ok_ns IS NULL THEN 1 ELSE 0 END AS never
    FROM each
    UNION ALL
    SELECT population, nemesis, f, 'ok' AS counted, ok_ns AS ns, 0 AS untried, 0 AS never
    FROM each
    WHERE ok_ns IS NOT NULL
),
measured AS (
    SELECT population, nemesis, f, counted, ns, untried, never,
           CAST(CASE WHEN ns < 32 THEN 0 ELSE LENGTH(BIN(ns)) - 6 END AS INT) AS shift
    FROM stacked
)
SELECT population, nemesis, f, counted,
       ((ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1) AS ns,
       COUNT(*) AS n,
       CAST(SUM(untried) AS BIGINT) AS untried,
       CAST(SUM(never) AS BIGINT) AS never,
       MAX(ns) AS most_ns
FROM measured
GROUP BY population, nemesis, f, counted, ((ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
