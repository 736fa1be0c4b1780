"""Nodes as containers; see `environment` (a run), `deploy` (its parts), `rules` (cuts)."""

from harness.environments.docker.environment import DockerEnvironment
from harness.environments.docker.image.image import build_image, image_exists, image_tag

__all__ = ["DockerEnvironment", "build_image", "image_exists", "image_tag"]
