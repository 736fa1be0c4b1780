"""Nodes as containers: `environment` runs a plan, `deploy` creates it, `network` breaks links."""

from harness.environments.docker.environment import DockerEnvironment
from harness.environments.docker.image.image import build_image, image_exists, image_tag

__all__ = ["DockerEnvironment", "build_image", "image_exists", "image_tag"]
