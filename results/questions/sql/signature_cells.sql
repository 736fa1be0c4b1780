-- In which populations was each failure seen, and in which runs first and last?
-- `last_place` is the place of the last such run among the `setting_runs` runs of its setting, by start.
-- `told` reads wide columns last, and only of the first and last runs.
WITH placed AS (
    SELECT run, setting, started,
           ROW_NUMBER() OVER (PARTITION BY setting ORDER BY COALESCE(started, ''), run) AS place,
           COUNT(*) OVER (PARTITION BY setting) AS total
    FROM judged
),
grouped AS MATERIALIZED (
    SELECT f.verdict, f.target, f.bugs,
           COALESCE(NULLIF(f.signature, ''), 'no verdict') AS signature, f.population, p.setting,
           COUNT(*) AS runs, MAX(p.total) AS setting_runs, MAX(p.place) AS last_place,
           ARG_MIN(p.run, (f.seed, p.run)) AS by_seed,
           ARG_MIN((p.run, p.started), p.place) AS from_first,
           ARG_MAX((p.run, p.started), p.place) AS from_last
    FROM failing_runs f
    JOIN placed p ON p.run = f.run
    GROUP BY ALL
),
told AS MATERIALIZED (
    SELECT run, seed, environment, checker, rule, reason, day, code FROM failing_runs
    WHERE run IN (
        SELECT UNNEST([by_seed, from_first[1], from_last[1]]) FROM grouped
    )
)
SELECT g.verdict, g.target, g.bugs, g.signature, g.population, g.setting,
       g.runs, g.setting_runs, g.last_place,
       s.run AS first_run, s.seed AS first_seed, s.environment, s.checker, s.rule, s.reason,
       from_first[2] AS first_started, a.day AS first_day, a.code AS first_code,
       from_last[2] AS last_started, z.day AS last_day, z.code AS last_code, z.run AS last_run
FROM grouped g
JOIN told s ON s.run = g.by_seed
JOIN told a ON a.run = g.from_first[1]
JOIN told z ON z.run = g.from_last[1]
