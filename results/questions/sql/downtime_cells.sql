-- How long, in ns, was the target unavailable in the chaos phase, with and without a fault? Sums over
-- runs, as in exposure_cells. `runs_with` and `runs_without` count runs with any such time.
WITH alike AS (
    SELECT j.population, e.nemesis, e.run,
           MAX(CASE WHEN e.active THEN 1 ELSE 0 END) AS has_with,
           MAX(CASE WHEN e.active THEN 0 ELSE 1 END) AS has_without,
           SUM(CASE WHEN e.active THEN e.ns ELSE 0 END) AS ns_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.ns END) AS ns_without,
           SUM(CASE WHEN e.active THEN e.mutation_down_ns ELSE 0 END) AS mutation_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.mutation_down_ns END) AS mutation_without,
           SUM(CASE WHEN e.active THEN e.read_down_ns ELSE 0 END) AS read_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.read_down_ns END) AS read_without
    FROM exposure_time e
    JOIN judged j ON j.run = e.run
    GROUP BY j.population, e.nemesis, e.run
),
stacked AS (
    SELECT population, nemesis, 'mutations down' AS outcome, '' AS f,
           mutation_with AS a, ns_with AS n, mutation_without AS b, ns_without AS m, has_with, has_without
    FROM alike
    UNION ALL
    SELECT population, nemesis, 'reads down' AS outcome, '' AS f,
           read_with, ns_with, read_without, ns_without, has_with, has_without
    FROM alike
)
SELECT population, nemesis, outcome, f,
       COUNT(CASE WHEN n > 0 OR m > 0 THEN 1 END) AS runs,
       CAST(SUM(has_with) AS BIGINT) AS runs_with,
       CAST(SUM(has_without) AS BIGINT) AS runs_without,
       CAST(SUM(a) AS BIGINT) AS a,
       CAST(SUM(n) AS BIGINT) AS n,
       CAST(SUM(b) AS BIGINT) AS b,
       CAST(SUM(m) AS BIGINT) AS m,
       SUM(CAST(a AS DECIMAL(19, 0)) * CAST(a AS DECIMAL(19, 0))) AS aa,
       SUM(CAST(a AS DECIMAL(19, 0)) * CAST(n AS DECIMAL(19, 0))) AS an,
       SUM(CAST(n AS DECIMAL(19, 0)) * CAST(n AS DECIMAL(19, 0))) AS nn,
       SUM(CAST(b AS DECIMAL(19, 0)) * CAST(b AS DECIMAL(19, 0))) AS bb,
       SUM(CAST(b AS DECIMAL(19, 0)) * CAST(m AS DECIMAL(19, 0))) AS bm,
       SUM(CAST(m AS DECIMAL(19, 0)) * CAST(m AS DECIMAL(19, 0))) AS mm,
       SUM(CAST(a AS DECIMAL(19, 0)) * CAST(b AS DECIMAL(19, 0))) AS ab,
       SUM(CAST(a AS DECIMAL(19, 0)) * CAST(m AS DECIMAL(19, 0))) AS am,
       SUM(CAST(n AS DECIMAL(19, 0)) * CAST(b AS DECIMAL(19, 0))) AS nb,
       SUM(CAST(n AS DECIMAL(19, 0)) * CAST(m AS DECIMAL(19, 0))) AS nm
FROM stacked
GROUP BY population, nemesis, outcome, f
