-- Which checkers find which bug?
SELECT d.bug, v.population, v.checker, v.runs AS detected
FROM verdict_cells v
JOIN detection d ON d.population = v.population
WHERE v.verdict = 'invalid'
ORDER BY d.bug, v.population, v.checker
