-- Which populations (runs of one label, whose cases differ only in the seed) are there, with which
-- outcomes?
SELECT population, label, workload, asked, bugs, environment, target, profile, setting,
       CAST(SUM(runs) AS BIGINT) AS runs,
       CAST(SUM(CASE WHEN verdict = 'valid' THEN runs ELSE 0 END) AS BIGINT) AS valid,
       CAST(SUM(CASE WHEN verdict = 'permitted' THEN runs ELSE 0 END) AS BIGINT) AS permitted,
       CAST(SUM(CASE WHEN verdict = 'unknown' THEN runs ELSE 0 END) AS BIGINT) AS unknown,
       CAST(SUM(CASE WHEN verdict = 'invalid' THEN runs ELSE 0 END) AS BIGINT) AS invalid,
       CAST(SUM(ops) AS BIGINT) AS ops,
       CAST(SUM(info) AS BIGINT) AS info,
       CAST(SUM(unanswered) AS BIGINT) AS unanswered,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns,
       MIN(first_started) AS first_started
FROM run_cells
GROUP BY population, label, workload, asked, bugs, environment, target, profile, setting
ORDER BY population
