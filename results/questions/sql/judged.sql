-- The verdict of each run: the worst verdict of its checkers; unknown if no checker gave one.
-- Runs of one label whose cases differ only in the seed are a population, numbered from 1. No other
-- query adds up runs of different populations.
-- A base table: later files read it under the name `judged`.
WITH worst AS (
    SELECT run,
           MAX(CASE verdict WHEN 'invalid' THEN 3 WHEN 'unknown' THEN 2 WHEN 'permitted' THEN 1 ELSE 0 END) AS severity,
           MIN(CASE WHEN verdict = 'invalid' THEN failed_ops END) AS failed_ops,
           CAST(SUM(cpu_ns) AS BIGINT) AS cpu_ns
    FROM verdicts
    GROUP BY run
),
alike AS (
    SELECT DISTINCT COALESCE(label, '') AS label, workload, asked, bugs, setting
    FROM runs
),
numbered AS (
    SELECT label, workload, asked, bugs, setting,
           CAST(ROW_NUMBER() OVER (
               ORDER BY label, COALESCE(workload, ''), COALESCE(asked, ''), COALESCE(bugs, ''), COALESCE(setting, '')
           ) AS BIGINT) AS population
    FROM alike
)
SELECT r.run, p.population,
       r.label, r.environment, r.target, r.profile, r.workload, r.nemeses, r.asked,
       r.bugs, r.setting, r.seed, r.started, r.length_ns, r.recorded, r.ops, r.ok, r.fail, r.info, r.refused,
       r.elections, r.faults, r.digest, r.code, SUBSTR(r.started, 1, 10) AS day, r.lines, r.wall_ns,
       w.cpu_ns, w.failed_ops,
       CASE w.severity WHEN 3 THEN 'invalid' WHEN 1 THEN 'permitted' WHEN 0 THEN 'valid' ELSE 'unknown' END AS verdict
FROM runs r
JOIN numbered p ON p.label = COALESCE(r.label, '')
               AND p.workload IS NOT DISTINCT FROM r.workload
               AND p.asked IS NOT DISTINCT FROM r.asked
               AND p.bugs IS NOT DISTINCT FROM r.bugs
               AND p.setting IS NOT DISTINCT FROM r.setting
LEFT JOIN worst w ON w.run = r.run
ORDER BY run
