//! The situations of public tests for log replay, written as our own scripts.
//!
//! A name begins with the number of the test. `found` marks sequences for which exhaustive tests of short
//! sequences found a loss.

use crate::scenarios::Scenario;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "generic 034 entry synced twice",
        before: "mkdir d; touch d/a",
        then: "touch d/b; sync d; ln d/b d/c; touch d/e; sync d/e d",
    },
    Scenario {
        name: "generic 039 links removed in turn",
        before: "mkdir d; echo 1 > d/f; ln d/f d/l1; ln d/f d/l2",
        then: "rm d/l1; echo 2 > d/f; sync d/f; rm d/l2; echo 3 > d/f; sync d/f",
    },
    Scenario {
        name: "generic 040 many links to a synced file",
        before: "mkdir d; touch d/f; ln d/f d/l",
        then: "for i in {1..150}; do ln d/f d/link-number-$i; done; sync d/f; rm d/link-number-{1..20}; sync d/f",
    },
    Scenario {
        name: "generic 041 link that is beyond one item added again",
        before: "mkdir d; touch d/f; for i in {1..120}; do ln d/f d/a-name-so-long-that-not-all-names-fit-one-item-$i; done",
        then: "rm d/a-name*-item-{7,119}; ln d/f d/x; sync d/f; ln d/f d/a-name-so-long-that-not-all-names-fit-one-item-119; ln d/f d/y; sync d/f",
    },
    Scenario {
        name: "generic 065 new links in a synced directory",
        before: "mkdir d; echo 1 > f",
        then: "ln f d/a; sync d; ln f d/b; sync d",
    },
    Scenario {
        name: "generic 104 links to two files of which one is synced",
        before: "mkdir d; echo 1 > d/a; echo 2 > d/b",
        then: "ln d/a d/al; ln d/b d/bl; sync d/b d",
    },
    Scenario {
        name: "generic 106 file of which a link was removed",
        before: "mkdir d; echo 1 > d/f; ln d/f d/l",
        then: "rm d/l; echo 2 >> d/f; sync d/f",
    },
    Scenario {
        name: "generic 107 link removed in another directory",
        before: "mkdir d e; echo 1 > d/f; ln d/f e/f",
        then: "rm e/f; echo 2 >> d/f; sync d/f",
    },
    Scenario {
        name: "generic 321 new directories one in another",
        before: "mkdir d",
        then: "mkdir d/e; sync d; touch d/e/f; sync d/e; mv d/e d/g; touch d/g/h; sync d/g d",
    },
    Scenario {
        name: "generic 322 renamed to another directory",
        before: "mkdir d e; echo 1 > d/a; echo 2 > e/b",
        then: "mv d/a e/c; sync d e; mv e/b e/a; sync e",
    },
    Scenario {
        name: "generic 335 moved, and the old directory synced",
        before: "mkdir -p a/b c; echo 1 > a/b/f; echo 2 > c/g",
        then: "mv a/b/f c/f; touch a/b/n; sync a/b",
    },
    Scenario {
        name: "generic 336 link removed and a sibling moved",
        before: "mkdir a b c; echo 1 > a/f; ln a/f b/l; echo 2 > b/x",
        then: "rm b/l; mv b/x c/x; sync a/f",
    },
    Scenario {
        name: "generic 336 after a sync of the directory",
        before: "mkdir a b c; echo 1 > a/f; ln a/f b/l; echo 2 > b/x",
        then: "touch b/n; sync b; rm b/l; mv b/x c/x; echo 3 >> a/f; sync a/f",
    },
    Scenario {
        name: "generic 336 sibling moved after a first sync",
        before: "mkdir a b c; echo 1 > a/f; ln a/f b/l; echo 2 > b/x",
        then: "rm b/l; sync a/f; mv b/x c/x; echo 3 >> a/f; sync a/f",
    },
    Scenario {
        name: "generic 336 moved out of the directory that has the file",
        before: "mkdir a b c; echo 1 > a/f; ln a/f b/l; echo 2 > a/x",
        then: "rm b/l; mv a/x c/x; sync a/f",
    },
    Scenario {
        name: "generic 341 directory renamed, its name a new directory's",
        before: "mkdir -p a/x; echo 1 > a/x/f; echo 2 > a/x/g",
        then: "mv a/x a/y; mkdir a/x; echo 3 > a/x/n; sync a/x",
    },
    Scenario {
        name: "generic 342 file renamed, its name a new file's",
        before: "mkdir a; head -c 16k /dev/urandom > a/f",
        then: "mv a/f a/g; echo 2 > a/f; sync a/f",
    },
    Scenario {
        name: "generic 343 linked, and another moved",
        before: "mkdir x y; echo 1 > x/f; echo 2 > x/g",
        then: "ln x/f x/l; mv x/g y/g; sync x/f x",
    },
    Scenario {
        name: "generic 343 linked in another directory, and siblings changed",
        before: "mkdir a b c; echo 1 > a/f; ln a/f b/f; touch a/x b/y",
        then: "ln a/f c/l; rm a/x; mv b/y b/z; mkdir a/n; touch a/n/f; sync c/l",
    },
    Scenario {
        name: "generic 376 renamed, and its old name a link",
        before: "mkdir d; echo 1 > d/f; echo 2 > d/g",
        then: "mv d/f d/h; ln d/g d/f; sync d/h; sync d/g",
    },
    Scenario {
        name: "generic 479 special files renamed, their names links",
        before: "mkdir d; mkfifo d/p; mknod d/c c 1 3; ln -s t d/s; echo 1 > d/f",
        then: "mv d/p d/p2; mv d/c d/c2; mv d/s d/s2; ln d/f d/p; ln d/f d/c; ln d/f d/s; sync d/f",
    },
    Scenario {
        name: "generic 480 link removed, its name a new file's",
        before: "mkdir d; echo 1 > d/f; ln d/f d/l",
        then: "rm d/l; echo 2 > d/l; sync d/l",
    },
    Scenario {
        name: "generic 498 link in a new directory",
        before: "mkdir a; echo 1 > a/f",
        then: "mkdir -p b/c; ln a/f b/c/l; sync a/f; touch b/x; sync b",
    },
    Scenario {
        name: "generic 502 three links exchange names",
        before: "mkdir d; touch d/f; ln d/f d/a; ln d/f d/b; ln d/f d/c",
        then: "mv d/a d/t; mv d/b d/a; mv d/c d/b; mv d/t d/c; ln d/f d/e; sync d/f",
    },
    Scenario {
        name: "generic 510 directory replaced by its sibling",
        before: "mkdir -p a/b a/c; touch a/c/f",
        then: "rmdir a/b; mv a/c a/b; touch a/b/n; sync a/b",
    },
    Scenario {
        name: "generic 520 links in several directories",
        before: "mkdir a b; echo 1 > f",
        then: "ln f a/l; ln f b/l; sync f; mkdir c; ln f c/l; rm a/l; sync f",
    },
    Scenario {
        name: "generic 526 renamed, linked and new",
        before: "mkdir d; echo 1 > d/a; echo 2 > d/b",
        then: "mv d/a d/c; ln d/b d/a; touch d/x; mv d/b d/e; sync d/c d/e",
    },
    Scenario {
        name: "generic 527 removed, linked, names used again",
        before: "mkdir d; echo 1 > d/f; ln d/f d/a; ln d/f d/b; echo 2 > d/g",
        then: "rm d/a; mv d/b d/a; ln d/g d/b; sync d/g; sync d",
    },
    Scenario {
        name: "generic 534 cut short and renamed",
        before: "mkdir d; head -c 64k /dev/urandom > d/f",
        then: "truncate -s 3000 d/f; sync d/f; mv d/f d/g; touch d/x; sync d/x d",
    },
    Scenario {
        name: "generic 552 renamed, then its data is synced",
        before: "head -c 256k /dev/urandom > f",
        then: "mv f g; xfs_io -c 'pwrite -q -S 7 64k 8k' -c fdatasync g",
    },
    Scenario {
        name: "generic 557 synced, removed, directory synced",
        before: "mkdir d; touch d/old",
        then: "echo 1 > d/f; sync d/f; rm d/f; sync d",
    },
    Scenario {
        name: "generic 640 child moved out of a changed directory",
        before: "mkdir a b; echo 1 > a/f",
        then: "chmod 700 a; mv a/f b/f; touch a/x; sync a; touch b/y; sync b",
    },
    Scenario {
        name: "generic 690 renamed symlink keeps its target",
        before: "mkdir d; ln -s target d/l",
        then: "mv d/l d/m; touch d/x; sync d",
    },
    Scenario {
        name: "generic 779 symlink renamed after it was synced",
        before: "mkdir d",
        then: "ln -s target d/l; sync d; mv d/l d/m; touch d/x; sync d/x d",
    },
    Scenario {
        name: "generic 782 link in a new directory, and the directory above synced",
        before: "mkdir a; echo 1 > f",
        then: "mkdir a/b; ln f a/b/l; sync f; touch a/b/x a/y; sync a",
    },
    Scenario {
        name: "generic 784 moved directory, its name used twice",
        before: "mkdir -p a/b c; echo 1 > a/b/f",
        then: "mv a/b c/b; mkdir a/b; sync a/b; mv a/b a/x; mkdir a/b; touch a/b/n; sync a/b a",
    },
    Scenario {
        name: "generic 785 new entry beside a renamed one",
        before: "mkdir d; echo 1 > d/a",
        then: "touch d/x; sync d; echo 2 > d/new; mv d/a d/b; sync d/b; sync d",
    },
    Scenario {
        name: "btrfs 118 snapshot deleted, its directory synced",
        before: "mkdir d; btrfs subvolume create s > /dev/null; btrfs subvolume snapshot s d/snap > /dev/null",
        then: "btrfs subvolume delete d/snap > /dev/null; touch d/x; sync d",
    },
    Scenario {
        name: "btrfs 120 directory of a deleted subvolume made again",
        before: "mkdir d; btrfs subvolume create d/s > /dev/null",
        then: "btrfs subvolume delete d/s > /dev/null; rmdir d; mkdir d; touch d/x; sync d",
    },
    Scenario {
        name: "btrfs 236 renamed or linked, then times and data",
        before: "mkdir d; echo 1 > d/f; echo 2 > d/g",
        then: "mv d/f d/h; touch -d 2001-01-01 d/h; echo 3 >> d/h; sync d/h; ln d/g d/l; touch d/g; echo 4 >> d/g; sync d/g",
    },
    Scenario {
        name: "btrfs 239 directory moved after it was synced",
        before: "mkdir a b",
        then: "mkdir a/x; touch a/x/f; sync a; mv a/x b/x; echo 1 > b/x/g; sync b/x/g; sync b",
    },
    Scenario {
        name: "btrfs 243 cut file beside a renamed one",
        before: "mkdir d; head -c 64k /dev/urandom > d/f; touch d/g",
        then: "truncate -s 1000 d/f; sync d/f; mv d/g d/h; sync d",
    },
    Scenario {
        name: "generic 509 file without a name",
        before: "mkdir d; touch d/x",
        then: "xfs_io -T -c 'pwrite -q 0 64k' -c fsync d; touch d/y; sync d",
    },
    Scenario {
        name: "generic 764 open file without a name any more",
        before: "mkdir d; echo 1 > d/f; ln d/f d/l",
        then: "exec 5<> d/f; rm d/f d/l; sync /proc/self/fd/5; touch d/x; sync d",
    },
    Scenario {
        name: "generic 771 open file without a name that has new data",
        before: "mkdir d; head -c 64k /dev/urandom > d/f",
        then: "exec 5<> d/f; head -c 256k /dev/urandom >&5; rm d/f; sync /proc/self/fd/5",
    },
    Scenario {
        name: "generic 417 open files without names beside a synced one",
        before: "mkdir d; for i in {1..5}; do head -c 30k /dev/urandom > d/$i; done",
        then: "exec 5<> d/1 6<> d/2; rm d/1 d/2; touch d/x; sync d",
    },
    Scenario {
        name: "generic 530 many files without names",
        before: "mkdir d",
        then: "for i in {1..20}; do xfs_io -T -c 'pwrite -q 0 8k' -c fsync d; done; touch d/x; sync d",
    },
    Scenario {
        name: "generic 056 synced, linked, another synced",
        before: "head -c 8k /dev/urandom > f",
        then: "head -c 8k /dev/urandom >> f; sync f; ln f l; touch g; sync g",
    },
    Scenario {
        name: "generic 059 hole smaller than a sector",
        before: "head -c 64k /dev/urandom > f",
        then: "xfs_io -c 'fpunch 5000 300' -c 'fpunch 9000 5000' -c fsync f",
    },
    Scenario {
        name: "generic 073 moved away, and another synced",
        before: "mkdir a b; head -c 8k /dev/urandom > a/f; touch a/g",
        then: "mv a/f b/f; echo 2 > a/g; sync a/g; mv a/g b/g; sync b",
    },
    Scenario {
        name: "generic 090 linked and committed, then appended",
        before: "head -c 8k /dev/urandom > f; ln f l",
        then: "head -c 8k /dev/urandom >> f; sync f",
    },
    Scenario {
        name: "generic 101 cut to nothing and made longer",
        before: "head -c 64k /dev/urandom > f",
        then: "truncate -s 0 f; truncate -s 64k f; sync f; xfs_io -c 'pwrite -q -S 3 1000 1000' -c fsync f",
    },
    Scenario {
        name: "generic 177 same hole twice",
        before: "head -c 256k /dev/urandom > f",
        then: "xfs_io -c 'fpunch 64k 64k' -c fsync -c 'pwrite -q -S 5 64k 64k' -c fsync -c 'fpunch 64k 64k' -c fsync f",
    },
    Scenario {
        name: "generic 311 random writes, holes and sizes",
        before: "head -c 256k /dev/urandom > f",
        then: "RANDOM=7; for i in {1..30}; do case $((RANDOM % 5)) in 0) xfs_io -c \"fpunch $((RANDOM * 8)) $((RANDOM % 30000 + 1))\" f;; 1) truncate -s $((RANDOM * 9)) f;; 2) sync f;; *) xfs_io -c \"pwrite -q -S $i $((RANDOM * 8)) $((RANDOM % 20000 + 1))\" f;; esac; done; sync f",
    },
    Scenario {
        name: "generic 325 ranges of a mapped file",
        before: "head -c 256k /dev/zero > f",
        then: "xfs_io -c 'mmap -rw 0 256k' -c 'mwrite -S 5 4k 8k' -c 'mwrite -S 6 200k 8k' -c 'msync -s 0 64k' -c 'msync -s 192k 64k' f",
    },
    Scenario {
        name: "generic 456 zeroed, cut and reserved",
        before: "head -c 128k /dev/urandom > f",
        then: "xfs_io -c 'fzero -k 100k 60k' -c fsync -c 'truncate 110k' -c 'falloc -k 110k 50k' -c 'pwrite -q -S 4 108k 20k' -c fsync f",
    },
    Scenario {
        name: "generic 501 clone over what was written",
        before: "head -c 256k /dev/urandom > g; touch f",
        then: "xfs_io -c 'pwrite -q -S 6 0 256k' -c fsync -c 'reflink g 0 64k 128k' -c fsync f",
    },
    Scenario {
        name: "generic 512 small space reserved at the end",
        before: "head -c 42k /dev/urandom > f",
        then: "xfs_io -c 'falloc -k 42k 4k' -c fsync -c 'pwrite -q -S 5 42k 1k' -c fsync f",
    },
    Scenario {
        name: "generic 588 clone within a file that is written again",
        before: "head -c 256k /dev/urandom > f",
        then: "xfs_io -c 'reflink f 0 256k 128k' -c fsync -c 'pwrite -q -S 9 64k 64k' -c 'pwrite -q -S 8 300k 16k' -c fsync f",
    },
    Scenario {
        name: "generic 695 holes that touch",
        before: "head -c 512k /dev/urandom > f",
        then: "xfs_io -c 'fpunch 64k 64k' -c fsync -c 'fpunch 128k 64k' -c fsync -c 'fpunch 32k 32k' -c fsync f",
    },
    Scenario {
        name: "generic 703 written with O_SYNC",
        before: "touch f",
        then: "xfs_io -s -c 'pwrite -q -S 5 0 64k' f; xfs_io -d -s -c 'pwrite -q -S 6 64k 64k' f",
    },
    Scenario {
        name: "generic 748 reserved, attribute, direct write",
        before: "touch f",
        then: "xfs_io -c 'falloc 0 256k' f; setfattr -n user.a -v 1 f; xfs_io -d -c 'pwrite -q -S 5 64k 64k' -c fdatasync f",
    },
    Scenario {
        name: "btrfs 095 as many references dropped as added",
        before: "head -c 256k /dev/urandom > g; cp --reflink=always g f",
        then: "xfs_io -c 'reflink g 0 256k 128k' -c 'fpunch 0 128k' -c fsync -c 'reflink g 128k 0 64k' -c fsync f",
    },
    Scenario {
        name: "btrfs 098 clone of a part from a lower offset",
        before: "head -c 256k /dev/urandom > f",
        then: "xfs_io -c 'pwrite -q -S 5 64k 128k' -c fsync -c 'reflink f 96k 400k 32k' -c fsync -c 'reflink f 64k 500k 32k' -c fsync f",
    },
    Scenario {
        name: "btrfs 159 hole over many extents",
        before: "for i in {0..99}; do xfs_io -f -c \"pwrite -q -S $i $((i * 8))k 4k\" f; done; sync f",
        then: "xfs_io -c 'fpunch 100k 400k' -c fsync -c 'pwrite -q -S 7 200k 4k' -c fsync f",
    },
    Scenario {
        name: "btrfs 209 ranges synced around a hole",
        before: "head -c 512k /dev/urandom > f",
        then: "xfs_io -c 'fpunch 128k 128k' -c 'mmap -rw 0 512k' -c 'mwrite -S 5 0 8k' -c 'mwrite -S 6 400k 8k' -c 'msync -s 0 64k' -c 'msync -s 384k 64k' f",
    },
    Scenario {
        name: "btrfs 231 cut, and a hole cloned",
        before: "head -c 256k /dev/urandom > f; truncate -s 256k g",
        then: "xfs_io -c 'truncate 100k' -c 'reflink g 0 128k 128k' -c fsync f",
    },
    Scenario {
        name: "generic 483 reserved beyond the end, synced twice",
        before: "head -c 64k /dev/urandom > f",
        then: "xfs_io -c 'falloc -k 64k 1M' -c fsync -c 'pwrite -q -S 4 0 4k' -c fsync f",
    },
    Scenario {
        name: "generic 677 reserved beyond the end, cut before",
        before: "head -c 256k /dev/urandom > f",
        then: "xfs_io -c 'truncate 100k' -c 'falloc -k 100k 512k' -c fsync -c 'falloc -k 1M 64k' -c fsync f",
    },
    Scenario {
        name: "btrfs 211 reserved around the end, in both ways",
        before: "head -c 100k /dev/urandom > f; cp f g",
        then: "xfs_io -c 'falloc 64k 128k' -c fsync f; xfs_io -c 'falloc -k 64k 128k' -c fsync g; xfs_io -c 'falloc -k 512k 64k' -c 'pwrite -q -S 4 150k 10k' -c fsync g",
    },
    Scenario {
        name: "generic 468 reserved and synced as data",
        before: "head -c 4k /dev/urandom > f; cp f g",
        then: "xfs_io -c 'falloc 0 1M' -c fdatasync f; xfs_io -c 'falloc -k 4k 1M' -c fdatasync g",
    },
    Scenario {
        name: "generic 066 attribute removed, directory and file",
        before: "mkdir d; touch d/f; for f in d d/f; do setfattr -n user.a -v 1 $f; setfattr -n user.b -v 2 $f; setfattr -n user.c -v 3 $f; done",
        then: "setfattr -x user.b d/f; sync d/f; setfattr -x user.a d; setfattr -x user.a d/f; sync d d/f",
    },
    Scenario {
        name: "generic 489 attributes over several syncs",
        before: "touch f",
        then: "for i in 1 2 3 4; do setfattr -n user.$i -v $i f; echo $i >> f; sync f; done; setfattr -x user.2 f; sync f",
    },
    Scenario {
        name: "generic 745 many attributes",
        before: "touch f",
        then: "for i in {1..60}; do setfattr -n user.attribute-$i -v \"$(head -c 300 /dev/zero | tr '\\0' v)\" f; done; sync f; setfattr -x user.attribute-30 f; sync f",
    },
    Scenario {
        name: "generic 535 mode",
        before: "touch f; mkdir d",
        then: "chmod 4755 f; sync f; chmod 1777 d; sync d; chmod 600 f; sync f",
    },
    Scenario {
        name: "generic 392 sizes and times by both syncs",
        before: "echo 1 > f; echo 2 > g",
        then: "truncate -s 4k f; touch -d 2002-02-02 f; sync f; truncate -s 4k g; sync -d g",
    },
    Scenario {
        name: "generic 505 owner",
        before: "touch f; mkdir d",
        then: "chown 12:34 f d; sync f d",
    },
    Scenario {
        name: "generic 507 flags",
        before: "touch f g; mkdir d",
        then: "chattr +A f; sync f; chattr +d g; sync g; chattr +a f; sync f; chattr -a f; sync f; chattr +A d; sync d",
    },
    Scenario {
        name: "generic 508 birth time",
        before: "touch old",
        then: "sleep 0.02; touch new; sync new",
    },
    Scenario {
        name: "generic 481 entries of a new directory after their sync",
        before: "mkdir d",
        then: "touch d/{1..9}; sync d; rm d/5; touch d/x; sync d/x",
    },
    Scenario {
        name: "generic 348 symlink in a new directory",
        before: "mkdir d",
        then: "mkdir d/e; ln -s target d/e/l; sync d",
    },
    Scenario {
        name: "found 1 name of a synced file taken by one of another directory",
        before: "mkdir A B; touch A/foo",
        then: "echo 1 > A/bar; sync A/bar; echo 2 > B/bar; mv B/bar A/bar; echo 3 > A/foo; sync A/foo; sync A",
    },
    Scenario {
        name: "found 2 directory replaced by the one that took its file",
        before: "mkdir -p A/C",
        then: "mv A/C B; echo 1 > B/bar; sync B/bar; mv B/bar A/bar; mv -T A B; sync B/bar",
    },
    Scenario {
        name: "found 3 link in a directory below a synced one",
        before: "mkdir -p A/C B",
        then: "touch B/foo; sync B/foo; ln B/foo A/C/foo; sync A",
    },
    Scenario {
        name: "found 4 renamed directory and a synced file in it",
        before: "mkdir A; touch A/foo",
        then: "mv A B; echo 1 > B/foo; sync B/foo; sync B",
    },
    Scenario {
        name: "found 5 two names, both synced",
        before: "mkdir A B; echo 1 > A/foo",
        then: "ln A/foo B/foo; sync A/foo B/foo",
    },
    Scenario {
        name: "found 6 synced directory, then one above",
        before: "mkdir -p t/A; touch t/foo",
        then: "touch t/A/foo; sync t/A/foo; echo 1 > t/foo; sync t/foo",
    },
    Scenario {
        name: "found 7 link to a synced file in a directory",
        before: "mkdir A; touch foo",
        then: "ln foo A/bar; sync foo",
    },
    Scenario {
        name: "found 8 written, synced, reserved beyond the end, synced",
        before: "touch f",
        then: "xfs_io -c 'pwrite -q -S 5 0 16k' -c fsync -c 'falloc -k 16k 16k' -c fsync f",
    },
    Scenario {
        name: "generic 546 reserved space written in part, the rest cloned",
        before: "xfs_io -f -c 'falloc 0 256k' f",
        then: "xfs_io -c 'pwrite -q -S 5 0 64k' -c 'reflink f 128k 512k 64k' -c fsync f",
    },
    Scenario {
        name: "btrfs 196 logs of several subvolumes",
        before: "for s in a b c; do btrfs subvolume create $s > /dev/null; echo 1 > $s/f; done",
        then: "for s in a b c; do echo 2 > $s/f; echo 3 > $s/g; sync $s/f; done; rm b/f; sync b c/g; echo 4 > x; sync x",
    },
    // Last, because quotas stay enabled.
    Scenario {
        name: "btrfs 119 snapshot deleted beside a synced file, with quotas",
        before: "mkdir d; echo 1 > d/f; btrfs subvolume create s > /dev/null; echo 1 > s/f; btrfs quota enable .; btrfs subvolume snapshot s snap > /dev/null; btrfs quota rescan -w . > /dev/null",
        then: "btrfs subvolume delete snap > /dev/null; head -c 9k /dev/urandom >> d/f; mv d/f d/g; sync d/g",
    },
];
