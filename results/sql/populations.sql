-- Which runs are alike (one label, cases that differ in the seed only), and what came of them?
SELECT population, label, workload, asked, bugs, environment, target, profile, setting,
       COUNT(*) AS runs,
       COUNT(CASE WHEN verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN verdict = 'permitted' THEN 1 END) AS permitted,
       COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
       CAST(SUM(ops) AS BIGINT) AS ops,
       CAST(SUM(info) AS BIGINT) AS info,
       CAST(SUM(fail - refused) AS BIGINT) AS unanswered,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns,
       MIN(COALESCE(started, '')) AS first_started
FROM judged
GROUP BY population, label, workload, asked, bugs, environment, target, profile, setting
ORDER BY population
