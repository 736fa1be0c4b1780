-- What did runs cost? Real time of the runs, CPU time of their checks, lines of their histories.
-- Sums only, over runs of perhaps many populations, so costs say nothing about the target.
SELECT target, label, day, profile, nemeses,
       COUNT(*) AS runs,
       COUNT(wall_ns) AS timed,
       CAST(SUM(wall_ns) AS BIGINT) AS wall_ns,
       CAST(SUM(cpu_ns) AS BIGINT) AS cpu_ns,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns,
       CAST(SUM(ops) AS BIGINT) AS ops,
       CAST(SUM(lines) AS BIGINT) AS lines
FROM judged
GROUP BY target, label, day, profile, nemeses
