-- How much of the chaos phase was unavailable while a nemesis had a fault, and while it had none?
SELECT j.population, e.nemesis, e.active,
       COUNT(DISTINCT e.run) AS runs,
       CAST(SUM(e.ns) AS BIGINT) AS ns,
       CAST(SUM(e.mutation_down_ns) AS BIGINT) AS mutation_down_ns,
       CAST(SUM(e.read_down_ns) AS BIGINT) AS read_down_ns
FROM exposure_time e
JOIN judged j ON j.run = e.run
GROUP BY j.population, e.nemesis, e.active
ORDER BY j.population, e.nemesis, e.active
