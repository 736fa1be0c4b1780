-- How did operations end, by kind? `refused` counts the part of `fail` that the target itself refused.
SELECT population, f,
       CAST(SUM(n) AS BIGINT) AS ops,
       CAST(SUM(CASE WHEN type = 'ok' THEN n ELSE 0 END) AS BIGINT) AS ok,
       CAST(SUM(CASE WHEN type = 'fail' THEN n ELSE 0 END) AS BIGINT) AS fail,
       CAST(SUM(CASE WHEN type = 'fail' AND answered THEN n ELSE 0 END) AS BIGINT) AS refused,
       CAST(SUM(CASE WHEN type = 'info' THEN n ELSE 0 END) AS BIGINT) AS info
FROM operation_cells
GROUP BY population, f
ORDER BY population, f
