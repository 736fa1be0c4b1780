"""`harness image build`: the Docker image that nodes run in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from harness.cli.parser import Parser

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Build the image unless it is there already."""
    parser = Parser(
        prog="harness image",
        description="Build the image of the nodes: from a normal base image where a registry "
        "answers, from Debian packages (debootstrap) elsewhere.",
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=["build"], help="build: make the image if it is missing")
    parser.add_argument("--force", action="store_true", help="build even if it is there")
    parsed: argparse.Namespace = parser.parse_args(list(arguments))
    from harness.environments.docker.image import build_image, image_exists, image_tag

    if image_exists() and not parsed.force:
        print(f"{image_tag()} is there already")
        return 0
    tag = build_image(lambda text: print(text, file=sys.stderr, flush=True))
    print(f"built {tag}")
    return 0
