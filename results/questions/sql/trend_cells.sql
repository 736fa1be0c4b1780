-- Which outcomes did the runs of each population have, by day and by version of the code?
-- The rows have only sums, which add up over days and versions.
WITH down AS (
    SELECT run,
           CAST(SUM(CASE WHEN kind = 'mutation' THEN end_ns - start_ns ELSE 0 END) AS BIGINT)
               AS mutation_down_ns,
           CAST(SUM(CASE WHEN kind = 'read' THEN end_ns - start_ns ELSE 0 END) AS BIGINT)
               AS read_down_ns
    FROM unavailability
    GROUP BY run
)
SELECT j.population, j.day, j.code,
       COUNT(*) AS runs,
       COUNT(CASE WHEN j.verdict = 'valid' THEN 1 END) AS valid,
       COUNT(CASE WHEN j.verdict = 'permitted' THEN 1 END) AS permitted,
       COUNT(CASE WHEN j.verdict = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN j.verdict = 'invalid' THEN 1 END) AS invalid,
       CAST(SUM(j.ops) AS BIGINT) AS ops,
       CAST(SUM(j.ok) AS BIGINT) AS ok,
       CAST(SUM(j.length_ns) AS BIGINT) AS length_ns,
       CAST(SUM(COALESCE(d.mutation_down_ns, 0)) AS BIGINT) AS mutation_down_ns,
       CAST(SUM(COALESCE(d.read_down_ns, 0)) AS BIGINT) AS read_down_ns,
       MIN(COALESCE(j.started, '')) AS first_started
FROM judged j
LEFT JOIN down d ON d.run = j.run
GROUP BY j.population, j.day, j.code
