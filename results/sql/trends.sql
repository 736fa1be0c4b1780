-- What became of the runs of each label, in the order in which the labels first appeared?
SELECT COALESCE(label, '') AS label,
       COUNT(*) AS runs,
       COUNT(CASE WHEN verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
       CAST(SUM(ops) AS BIGINT) AS ops,
       CAST(SUM(info) AS BIGINT) AS info,
       CAST(SUM(fail - refused) AS BIGINT) AS unanswered,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns,
       MIN(COALESCE(started, '')) AS first_started
FROM judged
GROUP BY COALESCE(label, '')
ORDER BY first_started, label
