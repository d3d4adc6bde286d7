"""Network file systems are refused by their type, read from a mount table."""

from pathlib import Path

import pytest

from sluice.core.errors import ConfigError
from sluice.wires.sqlite import mounts
from sluice.wires.sqlite.mounts import refuse_network, shared_between_kernels, type_at
from sluice.wires.sqlite.place import Place

TABLE = """\
sysfs /sys sysfs rw,nosuid 0 0
/dev/sda1 / ext4 rw,relatime 0 0
server:/export /srv nfs4 rw,vers=4.2 0 0
tmpfs /srv/local tmpfs rw 0 0
//nas/share /mnt/my\\040share cifs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
/dev/sdb1 /home/me/stick fuseblk rw 0 0
C:\\134 /mnt/c 9p rw,aname=drvfs 0 0
/dev/sdc1 /twice nfs rw 0 0
/dev/sdc1 /twice xfs rw 0 0
short line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/quota.db", "ext4"),
        ("/srv/app/quota.db", "nfs4"),
        ("/srv/local/quota.db", "tmpfs"),
        ("/srvother/quota.db", "ext4"),
        ("/mnt/my share/quota.db", "cifs"),
        ("/mnt/my/quota.db", "ext4"),
        ("/home/me/remote/quota.db", "fuse.sshfs"),
        ("/home/me/stick/quota.db", "fuseblk"),
        ("/mnt/c/quota.db", "9p"),
        ("/twice/quota.db", "xfs"),
    ],
)
def test_the_longest_mount_point_says_the_type_and_the_last_of_equals(path: str, kind: str) -> None:
    assert type_at(Path(path), TABLE) == kind


def test_a_table_that_says_nothing_of_a_path_gives_no_type() -> None:
    assert type_at(Path("/quota.db"), "") == ""
    assert not shared_between_kernels("")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.rclone", "9p", "virtiofs", "ceph", "lustre"]
)
def test_what_two_kernels_can_share_is_refused(kind: str) -> None:
    assert shared_between_kernels(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.gocryptfs", "apfs"]
)
def test_what_one_kernel_has_to_itself_is_not(kind: str) -> None:
    assert not shared_between_kernels(kind)


def test_the_error_names_the_type_and_the_way_out(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"server:/export {tmp_path}/share nfs4 rw 0 0\n")
    (tmp_path / "link").symlink_to(tmp_path / "share")
    for folder in ("share", "link"):
        with pytest.raises(
            ConfigError, match=r"on a nfs4 file system, .*use a folder on a local disk, or another store"
        ):
            refuse_network(tmp_path / folder / "quota.db", table)
    refuse_network(tmp_path / "quota.db", table)


def test_without_a_mount_table_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network(tmp_path / "quota.db", tmp_path / "no table")


def test_a_file_on_a_network_file_system_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"server:/export {tmp_path}/share nfs rw 0 0\n")
    (tmp_path / "share").mkdir()
    monkeypatch.setattr(mounts.refuse_network, "__defaults__", (table,))
    with pytest.raises(ConfigError, match="nfs"):
        Place(tmp_path / "share" / "quota.db").make_ready()
    assert not list((tmp_path / "share").iterdir())
