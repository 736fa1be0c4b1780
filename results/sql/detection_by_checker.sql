-- Which checkers find which bug?
SELECT t.value AS bug, v.checker, COUNT(DISTINCT v.run) AS detected
FROM verdicts v
JOIN traits t ON t.run = v.run AND t.trait = 'bug'
WHERE v.verdict = 'invalid'
GROUP BY t.value, v.checker
ORDER BY bug, v.checker
