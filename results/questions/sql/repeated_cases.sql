-- How many cases that ran several times with the same code had different verdicts or histories?
-- One row per setting and code; a case is a setting and a seed, under any label.
-- Different histories are normal in real time; in the simulation there must be none.
WITH cases AS (
    SELECT setting, code, seed, environment,
           COUNT(*) AS runs,
           COUNT(DISTINCT verdict) AS verdicts,
           COUNT(DISTINCT digest) AS histories
    FROM judged
    WHERE code IS NOT NULL
    GROUP BY setting, code, seed, environment
)
SELECT setting, code, environment,
       COUNT(*) AS cases,
       CAST(SUM(runs) AS BIGINT) AS runs,
       COUNT(CASE WHEN verdicts > 1 THEN 1 END) AS other_verdicts,
       COUNT(CASE WHEN histories > 1 THEN 1 END) AS other_histories
FROM cases
WHERE runs > 1
GROUP BY setting, code, environment
ORDER BY setting, code, COALESCE(environment, '')
