-- Which runs are not valid, and what is the first reason of the worst checker?
-- Invalid ones without a bug switch come first: nobody asked for those.
WITH ranked AS (
    SELECT run, checker, rule, signature, reason, verdict,
           ROW_NUMBER() OVER (
               PARTITION BY run
               ORDER BY CASE verdict WHEN 'invalid' THEN 0 ELSE 1 END, checker, COALESCE(key, '')
           ) AS place
    FROM verdicts
    WHERE verdict <> 'valid'
)
SELECT j.run, j.population, j.verdict, j.target, j.nemeses, j.bugs, j.seed, j.environment, j.recorded,
       r.checker, r.rule, r.signature, r.reason
FROM judged j
LEFT JOIN ranked r ON r.run = j.run AND r.place = 1
WHERE j.verdict <> 'valid'
ORDER BY CASE j.verdict WHEN 'invalid' THEN 0 ELSE 1 END,
         CASE j.bugs WHEN '' THEN 0 ELSE 1 END,
         j.run
