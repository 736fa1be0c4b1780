-- How much of the chaos phase of each run was unavailable with a fault active, and without?
SELECT j.population, e.nemesis, e.run,
       CAST(SUM(CASE WHEN e.active THEN e.ns ELSE 0 END) AS BIGINT) AS ns_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.ns END) AS BIGINT) AS ns_without,
       CAST(SUM(CASE WHEN e.active THEN e.mutation_down_ns ELSE 0 END) AS BIGINT) AS mutation_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.mutation_down_ns END) AS BIGINT) AS mutation_without,
       CAST(SUM(CASE WHEN e.active THEN e.read_down_ns ELSE 0 END) AS BIGINT) AS read_with,
       CAST(SUM(CASE WHEN e.active THEN 0 ELSE e.read_down_ns END) AS BIGINT) AS read_without
FROM exposure_time e
JOIN judged j ON j.run = e.run
GROUP BY j.population, e.nemesis, e.run
ORDER BY j.population, e.nemesis, e.run
