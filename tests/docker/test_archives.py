"""What is copied out of containers and into them again."""

import io
import tarfile

from harness.environments.docker.engine.archives import pack, unpack


def test_a_folder_that_was_packed_is_unpacked_as_it_was(tmp_path):
    there = tmp_path / "there"
    (there / "wal" / "old").mkdir(parents=True)
    (there / "wal" / "1").write_bytes(b"\x00\xff")
    (there / "instance").write_text("me")
    archive = io.BytesIO()
    pack(there, "data", 65532, archive)
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        assert {(info.uid, info.gid) for info in tar} == {(65532, 65532)}
    archive.seek(0)
    back = tmp_path / "back"
    unpack(archive, back)
    assert sorted(path.relative_to(back).as_posix() for path in back.rglob("*")) == [
        "instance", "wal", "wal/1", "wal/old"
    ]  # fmt: skip
    assert (back / "wal" / "1").read_bytes() == b"\x00\xff"
