-- Totals of all runs, for the head of the report. `repeats` counts runs with another run's history.
SELECT CAST(COALESCE(SUM(runs), 0) AS BIGINT) AS runs,
       CAST(COALESCE(SUM(CASE WHEN verdict = 'valid' THEN runs ELSE 0 END), 0) AS BIGINT) AS valid,
       CAST(COALESCE(SUM(CASE WHEN verdict = 'permitted' THEN runs ELSE 0 END), 0) AS BIGINT) AS permitted,
       CAST(COALESCE(SUM(CASE WHEN verdict = 'unknown' THEN runs ELSE 0 END), 0) AS BIGINT) AS unknown,
       CAST(COALESCE(SUM(CASE WHEN verdict = 'invalid' THEN runs ELSE 0 END), 0) AS BIGINT) AS invalid,
       CAST(COALESCE(SUM(ops), 0) AS BIGINT) AS ops,
       CAST(COALESCE(SUM(ok), 0) AS BIGINT) AS ok,
       CAST(COALESCE(SUM(fail), 0) AS BIGINT) AS fail,
       CAST(COALESCE(SUM(refused), 0) AS BIGINT) AS refused,
       CAST(COALESCE(SUM(info), 0) AS BIGINT) AS info,
       CAST(COALESCE(SUM(length_ns), 0) AS BIGINT) AS length_ns,
       CAST(COALESCE(SUM(faults), 0) AS BIGINT) AS faults,
       CAST(COALESCE(SUM(elections), 0) AS BIGINT) AS elections,
       CAST(COALESCE((SELECT MAX(histories - different) FROM digest_cells), 0) AS BIGINT) AS repeats
FROM run_cells
ORDER BY runs
