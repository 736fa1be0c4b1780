-- Under which active nemeses were new leaders seen? Empty: no fault was active when it was seen.
SELECT j.population, e.active, COUNT(*) AS elections, COUNT(DISTINCT e.run) AS runs,
       MAX(e.term) AS highest_term
FROM elections e
JOIN judged j ON j.run = e.run
WHERE NOT e.first
GROUP BY j.population, e.active
ORDER BY j.population, e.active
