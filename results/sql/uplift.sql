-- What happened in the chaos phase of each run with a fault of the nemesis active, and without?
-- One row a run, so that intervals can respect that operations of one run are no independent trials.
SELECT j.population, e.nemesis, e.run,
       CAST(SUM(CASE WHEN e.active THEN e.n ELSE 0 END) AS BIGINT) AS n_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.n END) AS BIGINT) AS n_without,
       CAST(SUM(CASE WHEN e.active THEN e.unanswered ELSE 0 END) AS BIGINT) AS unanswered_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.unanswered END) AS BIGINT) AS unanswered_without,
       CAST(SUM(CASE WHEN e.active THEN e.info ELSE 0 END) AS BIGINT) AS info_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.info END) AS BIGINT) AS info_without
FROM exposure e
JOIN judged j ON j.run = e.run
GROUP BY j.population, e.nemesis, e.run
ORDER BY j.population, e.nemesis, e.run
