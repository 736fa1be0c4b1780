-- What happened that the profile of the run permits, and how often?
-- A checker that found several such things at once names them all.
SELECT population, profile, permit, checker, runs, times, first_run
FROM verdict_cells
WHERE verdict = 'permitted'
ORDER BY population, permit, checker
