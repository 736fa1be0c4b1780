-- Which nemeses find which bug?
SELECT t.value AS bug, j.nemeses,
       COUNT(*) AS runs,
       COUNT(CASE WHEN j.verdict = 'invalid' THEN 1 END) AS detected
FROM judged j
JOIN traits t ON t.run = j.run AND t.trait = 'bug'
GROUP BY t.value, j.nemeses
ORDER BY bug, j.nemeses
