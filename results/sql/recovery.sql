-- How long after a heal does an operation of each kind succeed again? (nearest ranks)
-- `waited` counts from the first one that was under way after the heal: nobody may have tried
-- before. `untried`: heals after which nobody tried; `never`: tried, but none succeeded any more.
WITH alike AS (
    SELECT j.population, r.nemesis, r.f, r.first_ok_ns, r.first_try_ns
    FROM recoveries r
    JOIN judged j ON j.run = r.run
),
waits AS (
    SELECT population, nemesis, f, first_ok_ns, first_ok_ns - first_try_ns AS waited_ns
    FROM alike
    WHERE first_ok_ns IS NOT NULL
),
ranked AS (
    SELECT population, nemesis, f, first_ok_ns, waited_ns,
           ROW_NUMBER() OVER (PARTITION BY population, nemesis, f ORDER BY waited_ns) AS waited_place,
           ROW_NUMBER() OVER (PARTITION BY population, nemesis, f ORDER BY first_ok_ns) AS ok_place,
           COUNT(*) OVER (PARTITION BY population, nemesis, f) AS total
    FROM waits
),
nearest AS (
    SELECT population, nemesis, f,
           MIN(CASE WHEN waited_place * 1000 >= total * 500 THEN waited_ns END) AS waited_p50_ns,
           MIN(CASE WHEN waited_place * 1000 >= total * 950 THEN waited_ns END) AS waited_p95_ns,
           MAX(waited_ns) AS waited_max_ns,
           MIN(CASE WHEN ok_place * 1000 >= total * 500 THEN first_ok_ns END) AS ok_p50_ns,
           MAX(first_ok_ns) AS ok_max_ns
    FROM ranked
    GROUP BY population, nemesis, f
),
counted AS (
    SELECT population, nemesis, f,
           COUNT(*) AS heals,
           COUNT(CASE WHEN first_try_ns IS NULL THEN 1 END) AS untried,
           COUNT(CASE WHEN first_try_ns IS NOT NULL AND first_ok_ns IS NULL THEN 1 END) AS never
    FROM alike
    GROUP BY population, nemesis, f
)
SELECT c.population, c.nemesis, c.f, c.heals, c.untried, c.never,
       p.waited_p50_ns, p.waited_p95_ns, p.waited_max_ns, p.ok_p50_ns, p.ok_max_ns
FROM counted c
LEFT JOIN nearest p
       ON p.population = c.population AND p.nemesis = c.nemesis AND p.f = c.f
ORDER BY c.population, c.nemesis, c.f
