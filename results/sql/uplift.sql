-- What happened in the chaos phase of each run with a fault of the nemesis active, and without?
-- One row a run, so that intervals can respect that operations of one run are no independent trials.
SELECT nemesis, run,
       CAST(SUM(CASE WHEN active THEN n ELSE 0 END) AS BIGINT) AS n_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE n END) AS BIGINT) AS n_without,
       CAST(SUM(CASE WHEN active THEN unanswered ELSE 0 END) AS BIGINT) AS unanswered_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE unanswered END) AS BIGINT) AS unanswered_without,
       CAST(SUM(CASE WHEN active THEN info ELSE 0 END) AS BIGINT) AS info_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE info END) AS BIGINT) AS info_without
FROM exposure
GROUP BY nemesis, run
ORDER BY nemesis, run
