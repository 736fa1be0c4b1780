-- What happened in the chaos phase with a fault of the nemesis active, and without? Sums over runs of
-- what each of them has, and of its products: all that the variance of a ratio of totals needs.
-- `a` of `n` trials with the fault, `b` of `m` without.
WITH alike AS (
    SELECT j.population, e.nemesis, e.f, e.run,
           SUM(CASE WHEN e.active THEN e.n ELSE 0 END) AS n_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.n END) AS n_without,
           SUM(CASE WHEN e.active THEN e.unanswered ELSE 0 END) AS unanswered_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.unanswered END) AS unanswered_without,
           SUM(CASE WHEN e.active THEN e.info ELSE 0 END) AS info_with,
           SUM(CASE WHEN e.active THEN 0 ELSE e.info END) AS info_without
    FROM exposure e
    JOIN judged j ON j.run = e.run
    GROUP BY j.population, e.nemesis, e.f, e.run
),
by_run AS (
    SELECT population, nemesis, run,
           SUM(n_with) AS n_with, SUM(n_without) AS n_without,
           SUM(unanswered_with) AS unanswered_with, SUM(unanswered_without) AS unanswered_without,
           SUM(info_with) AS info_with, SUM(info_without) AS info_without
    FROM alike
    GROUP BY population, nemesis, run
),
stacked AS (
    SELECT population, nemesis, 'unanswered' AS outcome, '' AS f,
           unanswered_with AS a, n_with AS n, unanswered_without AS b, n_without AS m
    FROM by_run
    UNION ALL
    SELECT population, nemesis, 'info' AS outcome, '' AS f, info_with, n_with, info_without, n_without
    FROM by_run
    UNION ALL
    SELECT population, nemesis, 'bad' AS outcome, f,
           unanswered_with + info_with, n_with, unanswered_without + info_without, n_without
    FROM alike
)
SELECT population, nemesis, outcome, f,
       COUNT(CASE WHEN n > 0 OR m > 0 THEN 1 END) AS runs,
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
