//! The kinds of operations for a generator.

macro_rules! actions {
    ($($name:ident),+ $(,)?) => {
        /// An operation without its arguments; renames are distinguished by their purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Action { $($name),+ }

        impl Action {
            pub(super) const ALL: &[Action] = &[$(Action::$name),+];
        }
    };
}

actions! {
    Create, Mkdir, Symlink, Mknod, Link, Unlink, Rmdir,
    Rename, NoReplace, Exchange, Whiteout, MoveSubvolume,
    Open, Close, Tmpfile, LinkOpen,
    Write, Append, Truncate, Fallocate, CloneRange, CopyRange, Dedupe,
    SetXattr, RemoveXattr, Chmod, Chown, SetTimes, SetFlags,
    CreateSubvolume, Snapshot, DeleteSubvolume, SetReadOnly,
    SetDefault, SetReceived, GetReceived,
    Read, List, Stat, GetXattr, GetFlags,
    Sync, Fsync, Commit, Remount, DropCaches,
}
