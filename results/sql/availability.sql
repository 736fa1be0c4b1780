-- How much of the chaos phase was unavailable while a nemesis had a fault, and while it had none?
SELECT nemesis, active,
       COUNT(DISTINCT run) AS runs,
       CAST(SUM(ns) AS BIGINT) AS ns,
       CAST(SUM(mutation_down_ns) AS BIGINT) AS mutation_down_ns,
       CAST(SUM(read_down_ns) AS BIGINT) AS read_down_ns
FROM exposure_time
GROUP BY nemesis, active
ORDER BY nemesis, active
