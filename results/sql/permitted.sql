-- What happened that the profile of the run permits, and how often?
-- A checker that found several such things at once names them all.
SELECT j.population, j.profile, v.rule AS permit, v.checker,
       COUNT(DISTINCT v.run) AS runs,
       CAST(SUM(v.permitted) AS BIGINT) AS times,
       MIN(v.run) AS first_run
FROM verdicts v
JOIN judged j ON j.run = v.run
WHERE v.verdict = 'permitted'
GROUP BY j.population, j.profile, v.rule, v.checker
ORDER BY j.population, permit, v.checker
