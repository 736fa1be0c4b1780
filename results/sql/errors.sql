-- Which errors did operations end with, how often, and in how many runs?
SELECT j.population, o.f, o.type, o.error_code, o.answered,
       CAST(SUM(o.n) AS BIGINT) AS n,
       COUNT(DISTINCT o.run) AS runs
FROM ops o
JOIN judged j ON j.run = o.run
WHERE o.error_code IS NOT NULL
GROUP BY j.population, o.f, o.type, o.error_code, o.answered
ORDER BY n DESC, j.population, o.f, o.type, o.error_code, o.answered
