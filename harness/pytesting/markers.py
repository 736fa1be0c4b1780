"""Makes cases from the keyword arguments of tests. Arguments are named like `harness run`'s flags.

A keyword argument overrides the command line of pytest, which overrides the marker, which overrides
the defaults of the case. A name that is not a field of a case is an option of the target or the
workload, as on the command line, so `run_case(target="kudu", masters=5)` is `harness run --masters
5`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case, load_case
from harness.cli.project import settings_of_file
from harness.cli.run.case_options import PLAIN
from harness.cli.run.choose import AUTO
from harness.cli.run.system_option import DECLARED
from harness.errors import UsageError
from harness.plan.configured import load_target
from harness.plan.random_case import DRAWABLE
from harness.plugins import Target, Workload
from harness.registry import load_plugin

ENV_DEFAULT: Final = "sim"
_FIELDS: Final[dict[str, str]] = {  # keyword: field of `Case`
    **{flag[2:].replace("-", "_"): field for flag, (field, _, _) in PLAIN.items()},
    **{name: name for name in ("target", "workload", "knobs", "seed")},
    "bug": "bugs",
    "nemesis": "nemeses",
}
del _FIELDS["draw"]  # a test has a single case, and names its nemeses itself
_KEYWORDS: Final = {field: keyword for keyword, field in _FIELDS.items()}
_OF_CASE: Final = frozenset(
    {"workload", "nemeses", "profile", "env", "time-limit", "rate", "concurrency"}
)
"""The settings that a test may take from the file that declares its system."""
# the value is one name, several names separated by commas, or a sequence of names
_LISTS: Final = {"bug", "nemesis"}


def settings_of_markers(
    markers: Sequence[tuple[tuple[object, ...], dict[str, object]]],
) -> dict[str, object]:
    """Merge the markers of a test. The nearest marker comes first in `markers` and wins."""
    settings: dict[str, object] = {}
    for positional, named in reversed(markers):
        if positional:
            raise UsageError(
                f"the marker harness takes keyword arguments only, not {positional[0]!r}; "
                f'write e.g. @pytest.mark.harness(target="kudu", nemesis="kill-leader")'
            )
        settings |= named
    return settings


def with_system(settings: dict[str, object], root: Path) -> dict[str, object]:
    """Replace `system="FILE.toml"` by the target that the file declares.

    The file's other keys, such as `nemeses`, are defaults. A path is relative to `root`. Raises
    `UsageError`.
    """
    settings = dict(settings)
    if "system" not in settings:
        return settings
    file = settings.pop("system")
    if not isinstance(file, str | Path):
        raise UsageError(f"system is {file!r}; give the path of a TOML file that declares a system")
    if settings.get("target", DECLARED) != DECLARED:
        raise UsageError(
            f"system={str(file)!r} declares the system, and target names {settings['target']!r}; "
            "drop one of the two"
        )
    path = root / file
    target: Target = load_plugin("targets", DECLARED)
    options = target.read_file(path)
    usual = {
        _KEYWORDS.get(key, key.replace("-", "_")): value
        for key, value in settings_of_file(path).items()
        if key in _OF_CASE
    }
    usual |= {"workload": load_target(DECLARED, options).workload, **usual, **options}
    return {"env": AUTO, **usual, **settings, "target": DECLARED}


def case_from_settings(settings: Mapping[str, object]) -> Case:
    """Return the case that `settings` describe; raises `UsageError` for unknown settings.

    Ranges and names of plug-ins are checked when the case is planned.
    """
    fields: dict[str, Any] = {}
    others: dict[str, object] = {}
    for name, value in settings.items():
        if name in _FIELDS:
            fields[_FIELDS[name]] = _names(name, value) if name in _LISTS else value
        else:
            others[name] = value
    case = _convert({**fields, "given": [name for name in DRAWABLE if name in fields]})
    target: Target = load_plugin("targets", case.target)
    workload: Workload = load_plugin("workloads", case.workload)
    options: dict[str, dict[str, object]] = {"target": {}, "workload": {}}
    owners = {
        "target": {option.key for option in target.options},
        "workload": {option.key for option in workload.options},
    }
    for name, value in others.items():
        having = [owner for owner, names in owners.items() if name in names]
        if not having:
            raise UsageError(
                _unknown(name, case, [*_FIELDS, *owners["target"] | owners["workload"]])
            )
        for owner in having:
            options[owner][name] = value
    return msgspec.structs.replace(
        case, target_options=options["target"], workload_options=options["workload"]
    )


def stored_case(source: Case | Path | str, settings: Mapping[str, object]) -> Case:
    """Load the case of a test; raises `UsageError` if the test also has other settings."""
    if settings:
        raise UsageError(
            f"`case` decides the whole case; drop {', '.join(sorted(settings))}, or edit the case"
        )
    return source if isinstance(source, Case) else load_case(Path(source))


def _names(keyword: str, value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise UsageError(
            f"{keyword} is {value!r}; give one name, names with commas between, or a list of names"
        )
    names = [item.strip() for item in items]
    if not all(names) or (keyword == "nemesis" and len(names) > 1 and "none" in names):
        raise UsageError(
            f"{keyword} is {value!r}; no name may be empty, and `none` cannot be combined with "
            "another"
        )
    return tuple(dict.fromkeys(names))


def _convert(fields: dict[str, Any]) -> Case:
    try:
        return msgspec.convert(fields, Case)
    except msgspec.ValidationError as error:
        text = str(error)
        for field, keyword in _KEYWORDS.items():
            text = text.replace(f"`$.{field}", f"`{keyword}")
        raise UsageError(f"the case is not possible: {text}") from error


def _unknown(name: str, case: Case, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known))}"
    return (
        f"{name!r} is neither a field of a case nor an option of the target {case.system!r} or the "
        f"workload {case.workload!r}; {hint}"
    )
