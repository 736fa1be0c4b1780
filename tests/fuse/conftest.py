"""A fixture that mounts the native disk, which only its own commands control."""

import json
import os
import signal
import subprocess

import pytest

from harness.environments.fuse.available import find_binary
from harness.environments.fuse.mounts import SOURCE, detach, mounted_at


class Mounted:
    def __init__(self, folder, write_back_ms=0):
        self.root, objects = folder / "mount", folder / "objects"
        self.root.mkdir(parents=True)
        objects.mkdir()
        self.process = subprocess.Popen(
            [find_binary(), self.root, objects, f"{SOURCE}test", "7", str(write_back_ms)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert json.loads(self.process.stdout.readline()) == {"ready": True}

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def write(self, name, data, *, offset=0, sync=None):
        descriptor = os.open(self.root / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, data, offset)
            if sync is not None:
                sync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, name):
        return (self.root / name).read_bytes()

    def names(self):
        return sorted(path.name for path in self.root.iterdir())

    def sync_root(self):
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)

    def close(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        detach(self.root)
        assert mounted_at(self.root) is None


@pytest.fixture
def mounting(tmp_path):
    made = []

    def mount(**named):
        made.append(Mounted(tmp_path / str(len(made)), **named))
        return made[-1]

    yield mount
    for disk in made:
        disk.close()


@pytest.fixture
def disk(mounting):
    return mounting()
