-- How much of the chaos phase of each run was unavailable with a fault active, and without?
SELECT nemesis, run,
       CAST(SUM(CASE WHEN active THEN ns ELSE 0 END) AS BIGINT) AS ns_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE ns END) AS BIGINT) AS ns_without,
       CAST(SUM(CASE WHEN active THEN mutation_down_ns ELSE 0 END) AS BIGINT) AS mutation_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE mutation_down_ns END) AS BIGINT) AS mutation_without,
       CAST(SUM(CASE WHEN active THEN read_down_ns ELSE 0 END) AS BIGINT) AS read_with,
       CAST(SUM(CASE WHEN active THEN 0 ELSE read_down_ns END) AS BIGINT) AS read_without
FROM exposure_time
GROUP BY nemesis, run
ORDER BY nemesis, run
