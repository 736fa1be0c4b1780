-- What came of the runs, by nemeses, bug switches and workload?
SELECT nemeses, bugs, workload,
       COUNT(*) AS runs,
       COUNT(CASE WHEN verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS invalid,
       CAST(SUM(length_ns) AS BIGINT) AS length_ns
FROM judged
GROUP BY nemeses, bugs, workload
ORDER BY bugs, nemeses, workload
