-- How many faults did each nemesis inject, how many had a target, for how long, and how long was the
-- target unavailable under them? Overlapping faults each count their common time.
SELECT j.population, t.nemesis,
       COUNT(DISTINCT t.run) AS runs,
       COUNT(*) AS faults,
       COUNT(CASE WHEN hit THEN 1 END) AS hit,
       COUNT(CASE WHEN healed THEN 1 END) AS healed,
       COUNT(CASE WHEN bite > 0 THEN 1 END) AS bit,
       CAST(SUM(end_ns - start_ns) AS BIGINT) AS active_ns,
       CAST(SUM(mutation_down_ns) AS BIGINT) AS mutation_down_ns,
       CAST(SUM(read_down_ns) AS BIGINT) AS read_down_ns,
       MAX(mutation_down_ns) AS mutation_down_max_ns,
       MAX(read_down_ns) AS read_down_max_ns
FROM faults t
JOIN judged j ON j.run = t.run
GROUP BY j.population, t.nemesis
ORDER BY j.population, t.nemesis
