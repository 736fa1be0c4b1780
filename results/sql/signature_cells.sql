-- Runs that are not valid by what they have in common, and the first of each, by its seed.
SELECT verdict, target, bugs, signature, population, runs,
       run AS first_run, seed AS first_seed, environment, checker, rule, reason
FROM (
    SELECT verdict, target, bugs, COALESCE(NULLIF(signature, ''), 'no verdict') AS signature, population, run,
           seed, environment, checker, rule, reason,
           ROW_NUMBER() OVER (
               PARTITION BY verdict, target, bugs, COALESCE(NULLIF(signature, ''), 'no verdict'), population
               ORDER BY seed, run
           ) AS place,
           COUNT(*) OVER (
               PARTITION BY verdict, target, bugs, COALESCE(NULLIF(signature, ''), 'no verdict'), population
           ) AS runs
    FROM failing_runs
) ranked
WHERE place = 1
