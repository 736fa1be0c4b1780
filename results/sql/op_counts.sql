-- How did operations end, by kind? `refused` is part of `fail`: the target's own no.
SELECT j.population, o.f,
       CAST(SUM(o.n) AS BIGINT) AS ops,
       CAST(SUM(CASE WHEN o.type = 'ok' THEN o.n ELSE 0 END) AS BIGINT) AS ok,
       CAST(SUM(CASE WHEN o.type = 'fail' THEN o.n ELSE 0 END) AS BIGINT) AS fail,
       CAST(SUM(CASE WHEN o.type = 'fail' AND o.answered THEN o.n ELSE 0 END) AS BIGINT) AS refused,
       CAST(SUM(CASE WHEN o.type = 'info' THEN o.n ELSE 0 END) AS BIGINT) AS info
FROM ops o
JOIN judged j ON j.run = o.run
GROUP BY j.population, o.f
ORDER BY j.population, o.f
