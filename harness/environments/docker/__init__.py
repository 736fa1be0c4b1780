"""Nodes as containers: deploys a plan into an engine, and breaks links by packet rules."""

from harness.environments.docker.environment import DockerEnvironment
from harness.environments.docker.image.image import build_image, image_exists, image_tag

__all__ = ["DockerEnvironment", "build_image", "image_exists", "image_tag"]
