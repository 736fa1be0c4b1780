-- Which nemeses find which bug? Seeds of one population may have drawn different ones.
SELECT t.value AS bug, j.population, j.nemeses,
       COUNT(*) AS runs,
       COUNT(CASE WHEN j.verdict = 'invalid' THEN 1 END) AS detected
FROM judged j
JOIN traits t ON t.run = j.run AND t.trait = 'bug'
GROUP BY t.value, j.population, j.nemeses
ORDER BY bug, j.population, j.nemeses
