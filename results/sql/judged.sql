-- The verdict of each run: the worst that a checker gave; unknown where none did.
-- A base table: later files read it under the name `judged`.
WITH worst AS (
    SELECT run,
           MAX(CASE verdict WHEN 'invalid' THEN 2 WHEN 'unknown' THEN 1 ELSE 0 END) AS severity
    FROM verdicts
    GROUP BY run
)
SELECT r.run, r.label, r.environment, r.target, r.profile, r.workload, r.nemeses, r.bugs, r.setting,
       r.seed, r.started, r.length_ns, r.recorded, r.ops, r.ok, r.fail, r.info, r.refused,
       r.elections, r.faults, r.digest,
       CASE w.severity WHEN 2 THEN 'invalid' WHEN 0 THEN 'valid' ELSE 'unknown' END AS verdict
FROM runs r
LEFT JOIN worst w ON w.run = r.run
ORDER BY r.run
