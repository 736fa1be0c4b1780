-- The same by kind of operation: how many were not answered or lost, with the fault and without?
SELECT j.population, e.nemesis, e.f, e.run,
       CAST(SUM(CASE WHEN e.active THEN e.n ELSE 0 END) AS BIGINT) AS n_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.n END) AS BIGINT) AS n_without,
       CAST(SUM(CASE WHEN e.active THEN e.unanswered + e.info ELSE 0 END) AS BIGINT) AS bad_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.unanswered + e.info END) AS BIGINT) AS bad_without
FROM exposure e
JOIN judged j ON j.run = e.run
GROUP BY j.population, e.nemesis, e.f, e.run
ORDER BY j.population, e.nemesis, e.f, e.run
