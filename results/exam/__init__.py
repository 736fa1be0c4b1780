"""An exam measures which known defects the harness finds, at what cost, and its false alarms.

| module     | content                                                                |
|------------|------------------------------------------------------------------------|
| verb       | the verb `harness exam`: runs an exam, prints it, sets the exit code   |
| options    | the command line                                                       |
| rows       | the rows of an exam: switches, planted defects, clean profiles         |
| sitting    | runs the seeds of all rows, on worker processes or on Spark            |
| scores     | turns results of seeds into scores; defines the scoreboard `exam.json` |
| shrinking  | the sizes of shrunk detections                                         |
| baseline   | compares the scoreboard with an earlier one                            |
| trend      | the history of exams, one per commit                                   |
| text       | the scoreboard as text                                                 |
| page       | the scoreboard as a page                                               |
| bugs_page  | the page `docs/bugs.md`: every bug switch that a soak can find         |
| progress   | the status line of a running exam                                      |
"""
