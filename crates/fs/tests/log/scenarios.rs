//! Work on a volume before its power is cut: shell commands, each scenario in its own directory.

/// A scenario, whose last command syncs something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The committed part.
    pub(crate) before: &'static str,
    /// The part that is logged, as far as it is synced.
    pub(crate) then: &'static str,
}

const fn scenario(name: &'static str, before: &'static str, then: &'static str) -> Scenario {
    Scenario { name, before, then }
}

pub(crate) const ALL: &[Scenario] = &[
    scenario("new file", "", "echo new > f; sync f"),
    scenario(
        "new inline and large files",
        "",
        "head -c 100 /dev/urandom > s; head -c 1M /dev/urandom > l; sync s l",
    ),
    scenario(
        "append",
        "head -c 10k /dev/zero > f",
        "head -c 20k /dev/urandom >> f; sync f",
    ),
    scenario(
        "append twice",
        "echo a > f",
        "head -c 5k /dev/urandom >> f; sync f; head -c 9k /dev/urandom >> f; sync f",
    ),
    scenario(
        "overwrite in the middle",
        "head -c 1M /dev/urandom > f",
        "xfs_io -c 'pwrite -S 7 300k 40k' -c fsync f",
    ),
    scenario(
        "truncate down",
        "head -c 1M /dev/urandom > f",
        "truncate -s 100001 f; sync f",
    ),
    scenario("truncate up", "echo a > f", "truncate -s 3M f; sync f"),
    scenario(
        "truncate down and up",
        "head -c 1M /dev/urandom > f",
        "truncate -s 5k f; truncate -s 1M f; sync f",
    ),
    scenario(
        "punched hole",
        "head -c 1M /dev/urandom > f",
        "xfs_io -c 'fpunch 64k 256k' -c fsync f",
    ),
    scenario(
        "zeroed range",
        "head -c 1M /dev/urandom > f",
        "xfs_io -c 'fzero 64k 256k' -c fsync f",
    ),
    scenario(
        "preallocated",
        "echo a > f",
        "xfs_io -c 'falloc 1M 1M' -c fsync f",
    ),
    scenario(
        "preallocated beyond the end",
        "echo a > f",
        "xfs_io -c 'falloc -k 0 1M' -c fsync f",
    ),
    scenario(
        "write into preallocated",
        "xfs_io -f -c 'falloc 0 1M' f",
        "xfs_io -c 'pwrite -S 9 128k 64k' -c fsync f",
    ),
    scenario(
        "write into preallocated, beside what was written",
        "xfs_io -f -c 'falloc 0 1M' -c 'pwrite -S 7 0 64k' f",
        "xfs_io -c 'pwrite -S 8 64k 64k' -c fsync f",
    ),
    scenario(
        "clone in a file",
        "head -c 256k /dev/urandom > f",
        "xfs_io -c 'reflink f 0 512k 128k' -c fsync f",
    ),
    scenario(
        "clone of another file",
        "head -c 256k /dev/urandom > g",
        "cp --reflink=always g f; sync f",
    ),
    scenario(
        "clone of a new file",
        "",
        "head -c 256k /dev/urandom > g; cp --reflink=always g f; xfs_io -c 'pwrite -S 3 0 4k' f; sync f",
    ),
    scenario(
        "attributes",
        "echo a > f; setfattr -n user.a -v 1 f; setfattr -n user.b -v 2 f",
        "setfattr -x user.a f; setfattr -n user.c -v 3 f; chmod 600 f; chown 3:4 f; sync f",
    ),
    scenario(
        "acl of a directory",
        "mkdir d; setfacl -m u:7:rwx d",
        "setfacl -d -m u:8:r d; touch d/f; sync d",
    ),
    scenario(
        "new directory with files",
        "",
        "mkdir d; echo 1 > d/a; echo 2 > d/b; mkdir d/e; echo 3 > d/e/f; sync d",
    ),
    scenario(
        "file below new directories",
        "",
        "mkdir -p a/b/c; echo 1 > a/b/c/f; sync a/b/c/f",
    ),
    scenario(
        "deleted file",
        "mkdir d; touch d/a d/b d/c",
        "rm d/b; sync d",
    ),
    scenario(
        "many deleted and new files",
        "mkdir d; touch d/{1..200}",
        "rm d/{50..150}; touch d/{300..400}; sync d",
    ),
    scenario(
        "removed directory",
        "mkdir -p d/e/f; touch d/e/g",
        "rm -r d/e; sync d",
    ),
    scenario(
        "renamed in a directory",
        "mkdir d; echo 1 > d/a",
        "mv d/a d/b; sync d",
    ),
    scenario(
        "renamed file is synced",
        "mkdir d; echo 1 > d/a",
        "mv d/a d/b; sync d/b",
    ),
    scenario(
        "replaced by rename",
        "mkdir d; echo old > d/f",
        "echo new > d/t; sync d/t; mv d/t d/f; sync d",
    ),
    scenario(
        "name used again",
        "mkdir d; echo 1 > d/a",
        "mv d/a d/b; echo 2 > d/a; sync d/a",
    ),
    scenario(
        "directory's name used again",
        "mkdir -p d/a; touch d/a/x",
        "mv d/a d/c; mkdir d/a; touch d/a/y; sync d/a",
    ),
    scenario(
        "hard link",
        "mkdir d e; echo 1 > d/a",
        "ln d/a e/b; sync d/a",
    ),
    scenario(
        "hard link to a synced file",
        "mkdir d e",
        "echo 1 > d/a; sync d/a; ln d/a e/b; sync e",
    ),
    scenario(
        "link taken away",
        "mkdir d; echo 1 > d/a; ln d/a d/b",
        "rm d/a; sync d",
    ),
    scenario(
        "links rotate",
        "mkdir d; touch d/f; ln d/f d/a; ln d/f d/b",
        "rm d/a; ln d/f d/c; mv d/b d/a; sync d/f",
    ),
    scenario(
        "many links",
        "mkdir d; touch d/f; for i in {1..300}; do ln d/f d/link-of-a-rather-long-name-$i; done",
        "rm d/link-of-a-rather-long-name-{7,70,200,299}; echo 1 > d/f; sync d d/f",
    ),
    scenario(
        "symlink",
        "mkdir d",
        "ln -s target d/l; ln -s $(head -c 3000 /dev/zero | tr '\\0' x) d/long; sync d",
    ),
    scenario(
        "nodes",
        "mkdir d",
        "mkfifo d/p; mknod d/c c 1 3; mknod d/b b 7 9; sync d",
    ),
    scenario(
        "file moved and old directory synced",
        "mkdir d e; echo 1 > d/a",
        "mv d/a e/a; sync e",
    ),
    scenario(
        "synced, then moved by rename",
        "mkdir d e",
        "echo 1 > d/a; sync d/a; mv d/a e/a; touch d/z; sync d/z",
    ),
    scenario(
        "synced, then removed",
        "mkdir d",
        "echo 1 > d/a; echo 2 > d/b; sync d/a d/b; rm d/a; sync d",
    ),
    scenario(
        "unlinked but open",
        "mkdir d; echo 1 > d/a",
        "exec 5<> d/a; rm d/a; echo 2 >&5; sync /proc/self/fd/5",
    ),
    scenario(
        "changed data only",
        "head -c 64k /dev/zero > f",
        "xfs_io -c 'pwrite -S 5 0 64k' -c fdatasync f",
    ),
    scenario(
        "without checksums",
        "touch f; chattr +C f; head -c 64k /dev/zero > f",
        "xfs_io -c 'pwrite -S 5 8k 16k' -c 'pwrite -S 6 128k 8k' -c fsync f",
    ),
    scenario(
        "compressible",
        "",
        "yes text | head -c 600k > f; sync f; yes more | head -c 100k >> f; sync f",
    ),
    scenario(
        "sparse",
        "",
        "xfs_io -f -c 'pwrite -S 1 1M 4k' -c 'pwrite -S 2 64M 4k' -c fsync f",
    ),
    scenario(
        "subvolume",
        "btrfs subvolume create s > /dev/null; echo 1 > s/a; mkdir s/d",
        "echo 2 > s/d/b; rm s/a; sync s/d/b s; echo 3 > t; sync t",
    ),
    scenario("times", "touch f", "touch -d 1999-09-09 f; sync f"),
    scenario(
        "property",
        "mkdir d",
        "chattr +c d; echo 1 > d/f; chattr +A d/f; sync d d/f",
    ),
];
