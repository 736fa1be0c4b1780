"""Report of the tests that notice each defect: `python -m tests.defects [NAME...]`.

`--tests PATH...` runs these tests, such as whole folders, instead of the named ones.
"""

import argparse

from tests.defects.defects import DEFECTS
from tests.defects.runs import noticed_by


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *DEFECTS], metavar="NAME")
    parser.add_argument("--tests", nargs="+", default=())
    options = parser.parse_args()
    survived = 0
    for name in options.names or DEFECTS:
        test = noticed_by(DEFECTS[name], *options.tests)
        survived += test is None
        print(f"{name:42} {test or 'SURVIVED'}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
