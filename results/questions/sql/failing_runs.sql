-- Runs that are not valid, with the first reason of their worst checker.
-- Of several equally bad checkers, the first in the case names the failure, as in soaks and `run.json`;
-- checkers that only the report names come last.
-- Invalid runs without a bug switch come first, because their bugs are real.
-- A base table: later files read it under the name `failing_runs`.
WITH ranked AS (
    SELECT v.run, v.checker, v.rule, v.signature, v.reason,
           ROW_NUMBER() OVER (
               PARTITION BY v.run
               ORDER BY CASE v.verdict WHEN 'invalid' THEN 0 ELSE 1 END,
                        COALESCE(
                            NULLIF(INSTR(CONCAT('+', r.checkers, '+'), CONCAT('+', v.checker, '+')), 0),
                            2147483647
                        ),
                        v.checker, COALESCE(v.key, '')
           ) AS place
    FROM verdicts v
    LEFT JOIN runs r ON r.run = v.run
    WHERE v.verdict NOT IN ('valid', 'permitted')
)
SELECT j.run, j.population, j.verdict, j.target, j.nemeses, j.bugs, j.seed, j.environment, j.recorded,
       r.checker, r.rule, r.signature, r.reason, j.day, j.code
FROM judged j
LEFT JOIN ranked r ON r.run = j.run AND r.place = 1
WHERE j.verdict NOT IN ('valid', 'permitted')
ORDER BY CASE verdict WHEN 'invalid' THEN 0 ELSE 1 END,
         CASE bugs WHEN '' THEN 0 ELSE 1 END,
         run
