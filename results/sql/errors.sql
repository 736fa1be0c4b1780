-- Which errors did operations end with, how often, and in how many runs?
SELECT f, type, error_code, answered,
       CAST(SUM(n) AS BIGINT) AS n,
       COUNT(DISTINCT run) AS runs
FROM ops
WHERE error_code IS NOT NULL
GROUP BY f, type, error_code, answered
ORDER BY n DESC, f, type, error_code, answered
