-- Which nemeses find which bug? Seeds of one population may have drawn different nemeses.
SELECT d.bug, c.population, c.nemeses,
       CAST(SUM(c.runs) AS BIGINT) AS runs,
       CAST(SUM(CASE WHEN c.verdict = 'invalid' THEN c.runs ELSE 0 END) AS BIGINT) AS detected
FROM run_cells c
JOIN detection d ON d.population = c.population
GROUP BY d.bug, c.population, c.nemeses
ORDER BY d.bug, c.population, c.nemeses
