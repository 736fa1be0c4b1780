-- How many verdicts of each kind did checkers give, by population and by permitted anomaly?
SELECT j.population, j.profile, v.checker, v.verdict,
       CASE WHEN v.verdict = 'permitted' THEN v.rule END AS permit,
       COUNT(*) AS results,
       COUNT(DISTINCT v.run) AS runs,
       COUNT(v.error) AS crashed,
       CAST(SUM(v.permitted) AS BIGINT) AS times,
       MIN(v.run) AS first_run
FROM verdicts v
JOIN judged j ON j.run = v.run
GROUP BY j.population, j.profile, v.checker, v.verdict, CASE WHEN v.verdict = 'permitted' THEN v.rule END
