"""What breaks things, as data: kinds of faults, whom they hit, when, and the words for all three.

`kinds` has a struct per kind of fault, `selectors` say whom one hits at the moment it happens,
`schedules` when it happens, `words` is the language of all three (`cut leader from members every
10s for 4s`), `aimed` makes a nemesis of it, and `conductor` carries a schedule out.
"""
