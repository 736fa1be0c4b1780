-- Which runs have a verdict that differs from the verdict in their run.json?
SELECT run, recorded, verdict
FROM judged
WHERE recorded IS NOT NULL AND recorded <> verdict
ORDER BY run
