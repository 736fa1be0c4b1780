-- How did operations end, by kind and error; and in how many runs?
SELECT j.population, o.f, o.type, o.error_code, o.answered,
       CAST(SUM(o.n) AS BIGINT) AS n,
       COUNT(DISTINCT CASE WHEN o.error_code IS NOT NULL THEN o.run END) AS runs
FROM ops o
JOIN judged j ON j.run = o.run
GROUP BY j.population, o.f, o.type, o.error_code, o.answered
