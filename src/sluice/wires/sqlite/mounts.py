"""Which file systems may hold a SQLite file: those that one kernel has to itself.

SQLite's processes meet in shared memory and in locks. Both end at the kernel: where two machines, or a machine and a
guest on it, can have the same file open, each sees locks of its own, and what one writes the other overwrites. Such
file systems are refused by type, also when only one machine uses the file today.

The mount table is Linux's. Elsewhere nothing is refused, because there is no table to read.
"""

import os
import re
from pathlib import Path
from typing import Final

from sluice.core.errors import ConfigError

MOUNT_TABLE: Final = Path("/proc/self/mounts")

SHARED_BETWEEN_KERNELS: Final = frozenset({
    "9p", "acfs", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
    "vmhgfs", "webdav",
})  # fmt: skip
"""Network and cluster file systems, and folders that a host shares with its guests."""

FUSE_SHARED_BETWEEN_KERNELS: Final = frozenset({
    "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "cephfs", "curlftpfs", "davfs2", "fakeowner", "gcsfuse", "glusterfs",
    "goofys", "google-drive-ocamlfuse", "grpcfuse", "juicefs", "mfs", "mount-s3", "moosefs", "nfs", "osxfs", "rclone",
    "s3fs", "s3ql", "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse", "webdavfs",
})  # fmt: skip
"""The same behind ``fuse.``; what else is there is local until proven otherwise."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def refuse_network(path: Path, table: Path = MOUNT_TABLE) -> None:
    """Raise `ConfigError` if the file would be on a file system that is shared between kernels."""
    try:
        mounts = table.read_text("utf-8", "surrogateescape")
    except OSError:
        return  # no table, so nothing is known of the type
    kind = type_at(Path(os.path.realpath(path)), mounts)  # Path.resolve() may raise
    if shared_between_kernels(kind):
        raise ConfigError(
            f"SQLite file {str(path)!r} would be on a {kind} file system, which other machines can share: SQLite's "
            "locks don't reach that far, so limits would be passed; use a folder on a local disk, or another store"
        )


def shared_between_kernels(kind: str) -> bool:
    """Whether file systems of this type are."""
    if kind.startswith("fuse."):
        return kind.removeprefix("fuse.") in FUSE_SHARED_BETWEEN_KERNELS
    return kind in SHARED_BETWEEN_KERNELS


def type_at(path: Path, mounts: str) -> str:
    """The type of the file system that a path is on: that of the longest mount point above it, the last one mounted."""
    found, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), fields[1]))
        if path.is_relative_to(point) and len(point.parts) >= found:
            found, kind = len(point.parts), fields[2]
    return kind
