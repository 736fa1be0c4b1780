"""The entry point of the tool: parses arguments and returns the text to print."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from harness.env import Env
from harness.plugins import Said
from targets.kudu.rpc import Caller
from targets.kudu.tools.actions import ACTIONS
from targets.kudu.tools.admin import Admin, ToolError
from targets.kudu.tools.arguments import parse
from targets.kudu.tools.hms import Metastore, use_metastore

NO_METASTORE: Final = "Configuration error: the cluster has no metastore; start it with --hms"
TEXT_BYTES_MAX: Final = 8 * 1024 * 1024
_ESCAPED: Final = {
    code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}
"""Escapes for control characters, so that a table's name cannot control the terminal.

The escapes are valid in JSON as well.
"""


async def use_tool(
    env: Env,
    rpc: Caller,
    masters: Sequence[str],
    arguments: Sequence[str],
    metastore: Callable[[Admin], Awaitable[Metastore]] | None = None,
) -> Said:
    """Run the action that `arguments` name. Raises `UsageError` for unknown arguments.

    `metastore` opens both catalogs for the actions `hms ...`, if the cluster has metastores.
    """
    options = parse(arguments)
    try:
        admin = Admin(env, rpc, masters)
        if options.action in ACTIONS:
            output = await ACTIONS[options.action](admin, options)
        elif metastore is None:
            return Said("", 1, NO_METASTORE)
        else:
            output = await use_metastore(options.action, await metastore(admin), options)
    except ToolError as error:
        return Said("", 1, str(error).translate(_ESCAPED))
    output = Said(
        output.text.translate(_ESCAPED), output.exit_code, output.error.translate(_ESCAPED)
    )
    text = output.text.encode()
    if len(text) > TEXT_BYTES_MAX:
        kept = text[:TEXT_BYTES_MAX].decode(errors="ignore")
        return Said(kept, 1, f"the output was cut after {TEXT_BYTES_MAX} bytes")
    return output
