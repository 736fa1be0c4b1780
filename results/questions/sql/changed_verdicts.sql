-- Whose verdict differs from the one that the run itself had recorded?
SELECT run, recorded, verdict
FROM judged
WHERE recorded IS NOT NULL AND recorded <> verdict
ORDER BY run
