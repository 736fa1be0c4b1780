-- Which verdicts did each checker give, and how often did the checker crash?
SELECT population, checker,
       CAST(SUM(results) AS BIGINT) AS results,
       CAST(SUM(CASE WHEN verdict = 'valid' THEN results ELSE 0 END) AS BIGINT) AS valid,
       CAST(SUM(CASE WHEN verdict = 'permitted' THEN results ELSE 0 END) AS BIGINT) AS permitted,
       CAST(SUM(CASE WHEN verdict = 'unknown' THEN results ELSE 0 END) AS BIGINT) AS unknown,
       CAST(SUM(CASE WHEN verdict = 'invalid' THEN results ELSE 0 END) AS BIGINT) AS invalid,
       CAST(SUM(crashed) AS BIGINT) AS crashed
FROM verdict_cells
GROUP BY population, checker
ORDER BY population, checker
