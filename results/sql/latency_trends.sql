-- How long do acknowledged operations take on each day, and with each code? (nearest ranks)
-- An empty `f` is of all kinds of operations together.
WITH stacked AS (
    SELECT population, 'day' AS dimension, day AS value, f, ns, n FROM dated_latency_cells
    UNION ALL SELECT population, 'code', code, f, ns, n FROM dated_latency_cells
    UNION ALL SELECT population, 'day', day, '', ns, n FROM dated_latency_cells
    UNION ALL SELECT population, 'code', code, '', ns, n FROM dated_latency_cells
),
counted AS (
    SELECT population, dimension, value, f, ns, CAST(SUM(n) AS BIGINT) AS n
    FROM stacked
    WHERE value IS NOT NULL
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
