-- What did each checker say, how long did it take, and how often did it crash?
SELECT checker,
       COUNT(*) AS results,
       COUNT(CASE WHEN verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
       COUNT(error) AS crashed
FROM verdicts
GROUP BY checker
ORDER BY checker
