"""`harness serve`: a store in the browser.

| module   | what                                                                            |
|----------|---------------------------------------------------------------------------------|
| verb     | the command line                                                                |
| server   | sockets, and everything that keeps strangers out                                |
| routes   | which address is which page                                                     |
| paths    | files below the store, links never followed                                     |
| query    | what a list is filtered and sorted by                                           |
| library  | the store as the pages see it: rows, numbers, artefacts, cached within bounds   |
| runs     | the page of one run, its files, its archive                                     |
| compare  | two runs side by side                                                           |
| groups   | the verdict matrix and the trends                                               |
| drawing  | coordinates of the plots                                                        |
| render   | templates, all of which escape                                                  |

A page only reads. The exceptions are `report.html` and `trace.json`, which are made in the folder
of a run when somebody first asks for them, as `harness run` would have.
"""
