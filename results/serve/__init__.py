"""`harness serve`: a store or a lake in the browser.

| module        | what                                                                       |
|---------------|----------------------------------------------------------------------------|
| verb          | the command line                                                           |
| server        | sockets, and everything that keeps strangers out                           |
| routes        | which address is which page                                                |
| paths         | files below a folder, links never followed                                 |
| query         | what a list is filtered and sorted by                                      |
| run_table     | all runs as columns: filtered, sorted and counted                          |
| library       | what the pages ask of a store or a lake; numbers and artefacts of a run    |
| store_library | a store: its folders                                                       |
| lake_library  | a lake: folders made of rows when somebody asks                            |
| lake_index    | its runs in memory, kept up to date                                        |
| pages         | the list, a run, two runs side by side                                     |
| group_pages   | the verdict matrix, the trends, two labels side by side                    |
| groups        | runs counted by what they have in common                                   |
| over_time     | and over labels, days and versions of the code                             |
| compare       | in what two runs differ                                                    |
| labels        | in what the runs of two labels differ                                      |
| archive       | a run as a zip file                                                        |
| drawing       | coordinates of the plots                                                   |
| render        | templates, all of which escape                                             |

A page only reads. The exceptions are `report.html` and `trace.json`, which are made in the folder
of a run when somebody first asks for them, as `harness run` would have; a lake is left as it is.
"""
