-- The same by kind of operation: how many were not answered or lost, with the fault and without?
SELECT nemesis, f, run,
       CAST(SUM(CASE WHEN active THEN n ELSE 0 END) AS BIGINT) AS n_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE n END) AS BIGINT) AS n_without,
       CAST(SUM(CASE WHEN active THEN unanswered + info ELSE 0 END) AS BIGINT) AS bad_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE unanswered + info END) AS BIGINT) AS bad_without
FROM exposure
GROUP BY nemesis, f, run
ORDER BY nemesis, f, run
