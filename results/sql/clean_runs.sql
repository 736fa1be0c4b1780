-- Runs without any bug switched on: is any of them blamed?
SELECT population,
       COUNT(*) AS runs,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
       COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns
FROM judged
WHERE bugs = ''
GROUP BY population
ORDER BY population
