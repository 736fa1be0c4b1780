"""`harness image build`: the Docker image that nodes run in."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.output import note
from harness.cli.parser import Parser

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Build the image unless it is there already."""
    parser = Parser(
        prog="harness image",
        description="Build the image of the nodes: from a normal base image where a registry "
        "answers, from Debian packages (debootstrap) elsewhere.",
    )
    parser.add_argument("action", choices=["build"], help="build: make the image if it is missing")
    parser.parse_args(list(arguments))
    from harness.environments.docker.image import build_image

    print(build_image(note))
    return 0
