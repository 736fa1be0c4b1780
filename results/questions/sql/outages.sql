-- How many outages began under which nemeses, and how long did they last? Empty: no active fault.
SELECT j.population, u.active, u.kind,
       COUNT(*) AS outages,
       COUNT(DISTINCT u.run) AS runs,
       CAST(SUM(u.end_ns - u.start_ns) AS BIGINT) AS total_ns,
       MAX(u.end_ns - u.start_ns) AS longest_ns,
       COUNT(CASE WHEN u.ended <> 'answered' THEN 1 END) AS unended
FROM unavailability u
JOIN judged j ON j.run = u.run
GROUP BY j.population, u.active, u.kind
ORDER BY j.population, u.active, u.kind
