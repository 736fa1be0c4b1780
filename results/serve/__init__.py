"""`harness serve`: a store or a lake in the browser.

| module      | content                                                                         |
|-------------|---------------------------------------------------------------------------------|
| verb        | the command line                                                                |
| server      | sockets, and everything that keeps strangers out                                |
| routes      | which address is which page                                                     |
| paths       | files below a folder, links never followed                                      |
| query       | filters and orders of lists, as SQL conditions                                  |
| run_rows    | the row of a run, and finished runs as the tables of a report                   |
| runs        | all runs as a table in DuckDB's memory, kept up to date                         |
| run_folders | the folder of one run: in its store, or made again from the rows of a lake      |
| library     | what pages ask: all runs; verdicts, numbers, files and artefacts of a run       |
| pages       | the list, a run, two runs side by side                                          |
| group_pages | the verdict matrix, the trends, two labels side by side                         |
| groups      | their counts, and the report's own questions about the runs that a page shows   |
| compare     | differences of two runs                                                         |
| archive     | a run as a zip file                                                             |
| render      | templates, all of which escape                                                  |

A page only reads. The exceptions are `report.html` and `trace.json`, which are made in the folder
of a run on the first request, as `harness run` would have made them, and the lake of a store, which
is brought up to date.
"""
