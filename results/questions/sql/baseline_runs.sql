-- One row per run: all numbers that a comparison of two labels uses, except latencies.
WITH down AS (
    SELECT run,
           CAST(SUM(CASE WHEN kind = 'mutation' THEN end_ns - start_ns ELSE 0 END) AS BIGINT)
               AS mutation_down_ns,
           CAST(SUM(CASE WHEN kind = 'read' THEN end_ns - start_ns ELSE 0 END) AS BIGINT)
               AS read_down_ns
    FROM unavailability
    GROUP BY run
)
SELECT j.setting, j.label, j.run, j.environment, j.workload, j.asked, j.bugs, j.profile, j.verdict,
       j.ops, j.info, j.fail - j.refused AS unanswered, j.length_ns,
       COALESCE(d.mutation_down_ns, 0) AS mutation_down_ns,
       COALESCE(d.read_down_ns, 0) AS read_down_ns
FROM judged j
LEFT JOIN down d ON d.run = j.run
WHERE j.label IS NOT NULL
ORDER BY j.setting, j.label, j.run
