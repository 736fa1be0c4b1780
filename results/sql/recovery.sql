-- How long after a heal does an operation of each kind succeed again? (nearest ranks)
WITH ranked AS (
    SELECT nemesis, f, first_ok_ns,
           ROW_NUMBER() OVER (PARTITION BY nemesis, f ORDER BY first_ok_ns) AS place,
           COUNT(*) OVER (PARTITION BY nemesis, f) AS total
    FROM recoveries
    WHERE first_ok_ns IS NOT NULL
),
percentiles AS (
    SELECT nemesis, f,
           MIN(CASE WHEN place * 1000 >= total * 500 THEN first_ok_ns END) AS p50_ns,
           MIN(CASE WHEN place * 1000 >= total * 950 THEN first_ok_ns END) AS p95_ns,
           MAX(first_ok_ns) AS max_ns
    FROM ranked
    GROUP BY nemesis, f
),
counted AS (
    SELECT nemesis, f, COUNT(*) AS heals, COUNT(first_ok_ns) AS recovered
    FROM recoveries
    GROUP BY nemesis, f
)
SELECT c.nemesis, c.f, c.heals, c.heals - c.recovered AS never, p.p50_ns, p.p95_ns, p.max_ns
FROM counted c
LEFT JOIN percentiles p ON p.nemesis = c.nemesis AND p.f = c.f
ORDER BY c.nemesis, c.f
