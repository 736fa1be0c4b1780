-- Where was each failure seen, in which runs first and last, and how many were there since?
-- Runs of one setting are counted in the order of their start: `since` are those after its last one.
WITH placed AS (
    SELECT run, setting, length_ns,
           ROW_NUMBER() OVER (PARTITION BY setting ORDER BY COALESCE(started, ''), run) AS place,
           COUNT(*) OVER (PARTITION BY setting) AS total,
           started
    FROM judged
),
seen AS (
    SELECT f.verdict, f.target, f.bugs, COALESCE(NULLIF(f.signature, ''), 'no verdict') AS signature,
           f.population, f.run, f.seed, f.environment, f.checker, f.rule, f.reason, f.day, f.code,
           p.setting, p.place, p.total, p.started
    FROM failing_runs f
    JOIN placed p ON p.run = f.run
),
ranked AS (
    SELECT seen.*,
           ROW_NUMBER() OVER (
               PARTITION BY verdict, target, bugs, signature, population ORDER BY seed, run
           ) AS by_seed,
           ROW_NUMBER() OVER (
               PARTITION BY verdict, target, bugs, signature, population ORDER BY place
           ) AS from_first,
           ROW_NUMBER() OVER (
               PARTITION BY verdict, target, bugs, signature, population ORDER BY place DESC
           ) AS from_last
    FROM seen
)
SELECT verdict, target, bugs, signature, population, setting,
       COUNT(*) AS runs,
       MAX(total) AS setting_runs,
       MAX(place) AS last_place,
       MIN(CASE WHEN by_seed = 1 THEN run END) AS first_run,
       MIN(CASE WHEN by_seed = 1 THEN seed END) AS first_seed,
       MIN(CASE WHEN by_seed = 1 THEN environment END) AS environment,
       MIN(CASE WHEN by_seed = 1 THEN checker END) AS checker,
       MIN(CASE WHEN by_seed = 1 THEN rule END) AS rule,
       MIN(CASE WHEN by_seed = 1 THEN reason END) AS reason,
       MIN(CASE WHEN from_first = 1 THEN started END) AS first_started,
       MIN(CASE WHEN from_first = 1 THEN day END) AS first_day,
       MIN(CASE WHEN from_first = 1 THEN code END) AS first_code,
       MIN(CASE WHEN from_last = 1 THEN started END) AS last_started,
       MIN(CASE WHEN from_last = 1 THEN day END) AS last_day,
       MIN(CASE WHEN from_last = 1 THEN code END) AS last_code,
       MIN(CASE WHEN from_last = 1 THEN run END) AS last_run
FROM ranked
GROUP BY verdict, target, bugs, signature, population, setting
