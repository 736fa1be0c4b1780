-- How many operations of the chaos phase failed or were lost, with and without an active fault of the
-- nemesis? `a` of `n` operations with the fault, `b` of `m` without. The rows have sums over runs of
-- these numbers and of their products, which the variance of a ratio of totals needs.
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
           CAST(unanswered_with AS BIGINT) AS a, CAST(n_with AS BIGINT) AS n,
           CAST(unanswered_without AS BIGINT) AS b, CAST(n_without AS BIGINT) AS m
    FROM by_run
    UNION ALL
    SELECT population, nemesis, 'info' AS outcome, '' AS f,
           CAST(info_with AS BIGINT), CAST(n_with AS BIGINT),
           CAST(info_without AS BIGINT), CAST(n_without AS BIGINT)
    FROM by_run
    UNION ALL
    SELECT population, nemesis, 'bad' AS outcome, f,
           CAST(unanswered_with + info_with AS BIGINT), CAST(n_with AS BIGINT),
           CAST(unanswered_without + info_without AS BIGINT), CAST(n_without AS BIGINT)
    FROM alike
)
SELECT population, nemesis, outcome, f,
       COUNT(CASE WHEN n > 0 OR m > 0 THEN 1 END) AS runs,
       CAST(SUM(a) AS BIGINT) AS a,
       CAST(SUM(n) AS BIGINT) AS n,
       CAST(SUM(b) AS BIGINT) AS b,
       CAST(SUM(m) AS BIGINT) AS m,
       CAST(SUM(a * a) AS BIGINT) AS aa,
       CAST(SUM(a * n) AS BIGINT) AS an,
       CAST(SUM(n * n) AS BIGINT) AS nn,
       CAST(SUM(b * b) AS BIGINT) AS bb,
       CAST(SUM(b * m) AS BIGINT) AS bm,
       CAST(SUM(m * m) AS BIGINT) AS mm,
       CAST(SUM(a * b) AS BIGINT) AS ab,
       CAST(SUM(a * m) AS BIGINT) AS am,
       CAST(SUM(n * b) AS BIGINT) AS nb,
       CAST(SUM(n * m) AS BIGINT) AS nm
FROM stacked
GROUP BY population, nemesis, outcome, f
