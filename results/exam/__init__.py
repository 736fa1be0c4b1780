"""The exam of the harness: which known defects it finds, at what cost, and its false alarms.

| module     | content                                                                |
|------------|------------------------------------------------------------------------|
| verb       | `harness exam`: the course of an exam, its output and exit code        |
| options    | the command line                                                       |
| rows       | the rows of an exam: switches, planted defects, clean profiles         |
| sitting    | runs the seeds of all rows, on worker processes or on Spark            |
| scores     | results of seeds as scores; the scoreboard, which is `exam.json`       |
| shrinking  | the sizes of shrunk detections                                         |
| baseline   | comparison with an earlier scoreboard                                  |
| trend      | earlier exams, by commit                                               |
| text       | the scoreboard as text                                                 |
| page       | the scoreboard as a page                                               |
| bugs_page  | the list of all switches that soaks find (`docs/bugs.md`)              |
| progress   | the status line                                                        |
"""
