-- How many runs without any bug switched on are invalid or unknown?
SELECT population,
       CAST(SUM(runs) AS BIGINT) AS runs,
       CAST(SUM(CASE WHEN verdict = 'invalid' THEN runs ELSE 0 END) AS BIGINT) AS invalid,
       CAST(SUM(CASE WHEN verdict = 'unknown' THEN runs ELSE 0 END) AS BIGINT) AS unknown,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns
FROM run_cells
WHERE bugs = ''
GROUP BY population
ORDER BY population
