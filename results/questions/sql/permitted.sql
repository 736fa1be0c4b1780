-- Which anomalies that the profile of the run permits happened, and how often?
-- A checker that found several permitted anomalies in a run names them all.
SELECT population, profile, permit, checker, runs, times, first_run
FROM verdict_cells
WHERE verdict = 'permitted'
ORDER BY population, permit, checker
