-- Which cases had different outcomes with the same code? An outcome is the verdict. In the simulation
-- the history counts, too, since a different history means that more than the seed decides.
WITH cases AS (
    SELECT setting, code, seed, environment,
           COUNT(*) AS runs,
           COUNT(CASE WHEN verdict IN ('valid', 'permitted') THEN 1 END) AS held,
           COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
           COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
           COUNT(DISTINCT verdict) AS verdicts,
           COUNT(DISTINCT digest) AS histories,
           MIN(population) AS population,
           MIN(run) AS run,
           MAX(run) AS last_run
    FROM judged
    WHERE code IS NOT NULL
    GROUP BY setting, code, seed, environment
)
SELECT CASE WHEN verdicts > 1 THEN 'verdict' ELSE 'history' END AS differs,
       population, setting, seed, code, environment, runs, held, unknown, invalid, histories,
       run, last_run
FROM cases
WHERE verdicts > 1 OR (histories > 1 AND environment = 'sim')
ORDER BY CASE WHEN verdicts > 1 THEN 0 ELSE 1 END, setting, seed, code, COALESCE(environment, '')
