-- Counts of runs and sums over runs, by population, nemeses and verdict. Other queries add them up.
SELECT population, label, workload, asked, bugs, environment, target, profile, setting, nemeses, verdict,
       COUNT(*) AS runs,
       CAST(SUM(ops) AS BIGINT) AS ops,
       CAST(SUM(ok) AS BIGINT) AS ok,
       CAST(SUM(fail) AS BIGINT) AS fail,
       CAST(SUM(refused) AS BIGINT) AS refused,
       CAST(SUM(info) AS BIGINT) AS info,
       CAST(SUM(fail - refused) AS BIGINT) AS unanswered,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns,
       CAST(SUM(faults) AS BIGINT) AS faults,
       CAST(SUM(elections) AS BIGINT) AS elections,
       MIN(elections) AS least,
       MAX(elections) AS most,
       COUNT(CASE WHEN elections = 0 THEN 1 END) AS runs_without,
       MIN(COALESCE(started, '')) AS first_started
FROM judged
GROUP BY population, label, workload, asked, bugs, environment, target, profile, setting, nemeses, verdict
