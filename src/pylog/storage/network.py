"""Filesystems whose locks between hosts can't be relied on, by the names the system gives their types."""

NETWORK_FILESYSTEMS = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "lustre",
            "glusterfs",
            "beegfs",
            "gpfs",
            "ncpfs",
        ),
        *("davfs", "fuse.davfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse"),
    }
)
