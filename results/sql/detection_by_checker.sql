-- Which checkers find which bug?
SELECT t.value AS bug, j.population, v.checker, COUNT(DISTINCT v.run) AS detected
FROM verdicts v
JOIN judged j ON j.run = v.run
JOIN traits t ON t.run = v.run AND t.trait = 'bug'
WHERE v.verdict = 'invalid'
GROUP BY t.value, j.population, v.checker
ORDER BY bug, j.population, v.checker
