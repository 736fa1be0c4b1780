-- Under which nemeses were new leaders seen? Empty: no fault was active at that moment.
SELECT active, COUNT(*) AS elections, COUNT(DISTINCT run) AS runs, MAX(term) AS highest_term
FROM elections
WHERE NOT first
GROUP BY active
ORDER BY active
