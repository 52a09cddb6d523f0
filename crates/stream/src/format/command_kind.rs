//! The numbers and names of commands.

use super::numbered::numbered;

numbered! {
    /// The numbers of commands.
    pub enum CommandKind {
        Subvol = 1 "subvol",
        Snapshot = 2 "snapshot",
        Mkfile = 3 "mkfile",
        Mkdir = 4 "mkdir",
        Mknod = 5 "mknod",
        Mkfifo = 6 "mkfifo",
        Mksock = 7 "mksock",
        Symlink = 8 "symlink",
        Rename = 9 "rename",
        Link = 10 "link",
        Unlink = 11 "unlink",
        Rmdir = 12 "rmdir",
        SetXattr = 13 "set_xattr",
        RemoveXattr = 14 "remove_xattr",
        Write = 15 "write",
        Clone = 16 "clone",
        Truncate = 17 "truncate",
        Chmod = 18 "chmod",
        Chown = 19 "chown",
        Utimes = 20 "utimes",
        End = 21 "end",
        UpdateExtent = 22 "update_extent",
        Fallocate = 23 "fallocate",
        Fileattr = 24 "fileattr",
        EncodedWrite = 25 "encoded_write",
        /// Only its name is known, because it requires version 3.
        EnableVerity = 26 "enable_verity",
    }
}

impl CommandKind {
    pub(super) fn needs_version_2(self) -> bool {
        self.raw() >= CommandKind::Fallocate.raw()
    }
}
