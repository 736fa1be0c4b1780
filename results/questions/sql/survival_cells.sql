-- After how many operations did runs fail, or end without a failure?
-- A run fails at the first operations that its checker names, or at its end if the checker names none.
-- Runs whose verdict is unknown neither fail nor survive, and are left out.
SELECT population,
       CASE WHEN verdict = 'invalid' THEN COALESCE(failed_ops, ops) ELSE ops END AS ops,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS failed,
       COUNT(CASE WHEN verdict <> 'invalid' THEN 1 END) AS ended
FROM judged
WHERE verdict <> 'unknown'
GROUP BY population, CASE WHEN verdict = 'invalid' THEN COALESCE(failed_ops, ops) ELSE ops END
