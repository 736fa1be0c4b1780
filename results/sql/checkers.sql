-- What did each checker say, how long did it take, and how often did it crash?
SELECT j.population, v.checker,
       COUNT(*) AS results,
       COUNT(CASE WHEN v.verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN v.verdict = 'permitted' THEN 1 END) AS permitted,
       COUNT(CASE WHEN v.verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN v.verdict = 'invalid' THEN 1 END) AS invalid,
       COUNT(v.error) AS crashed
FROM verdicts v
JOIN judged j ON j.run = v.run
GROUP BY j.population, v.checker
ORDER BY j.population, v.checker
