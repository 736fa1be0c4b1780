"""`harness image build`: builds the Docker image of nodes, or of Spark's executors."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.output import note
from harness.cli.parser import Parser


def main(arguments: Sequence[str]) -> int:
    """Build the chosen image if it does not exist yet, and print its name."""
    parser = Parser(
        prog="harness image",
        description="Build the image of the nodes: from a normal base image if a registry "
        "answers, else from Debian packages (debootstrap).",
    )
    parser.add_argument("action", choices=["build"], help="build: make the image if it is missing")
    parser.add_argument(
        "--executor",
        action="store_true",
        help="build the image for Spark's drivers, masters, workers and executors instead; it "
        "contains all installed plug-ins (docs/spark.md)",
    )
    if parser.parse_args(list(arguments)).executor:
        from harness.environments.docker.image.executor.image import build_executor

        print(build_executor(note))
        return 0
    from harness.environments.docker.image.image import build_image

    print(build_image(note))
    return 0
