-- Which errors did operations end with, how often, and in how many runs?
SELECT population, f, type, error_code, answered, n, runs
FROM operation_cells
WHERE error_code IS NOT NULL
ORDER BY n DESC, population, f, type, error_code, answered
