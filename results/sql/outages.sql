-- How many outages began under which nemeses, and how long were they? Empty: no fault was active.
SELECT active, kind,
       COUNT(*) AS outages,
       COUNT(DISTINCT run) AS runs,
       CAST(SUM(end_ns - start_ns) AS BIGINT) AS total_ns,
       MAX(end_ns - start_ns) AS longest_ns,
       COUNT(CASE WHEN ended <> 'answered' THEN 1 END) AS unended
FROM unavailability
GROUP BY active, kind
ORDER BY active, kind
