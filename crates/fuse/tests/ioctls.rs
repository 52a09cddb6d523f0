//! The ioctls of btrfs have the same answers on our mount as on the kernel's.

#[path = "ioctls/acls.rs"]
mod acls;
#[path = "ioctls/binds.rs"]
mod binds;
#[path = "ioctls/locks.rs"]
mod locks;
#[path = "ioctls/raw.rs"]
mod raw;
mod served;
#[path = "ioctls/users.rs"]
mod users;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::thread;

use rustix::fs::{Dir, SeekFrom};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::mount::{MountFlags, mount_remount};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use self::raw::*;
use self::served::Served;

/// Sends all requests in order, and returns the answers without ids of volumes and times.
fn script(top: &Path) -> Vec<String> {
    let mut answers = Answers::default();
    let mut note = |what: &str, answer| answers.note(what, answer);
    let open = |path: &str| File::open(top.join(path)).unwrap();
    let root = open("");
    for name in [
        &b"a"[..],
        b"a",
        b"b",
        b"x/y",
        b".",
        b"..",
        b"",
        &[b'n'; 256],
        &[b'n'; 4088],
    ] {
        let made = ask(&root, SUBVOL_CREATE, &named(name));
        note(&format!("create {}", name.len()), silent(made));
    }
    note(
        "flags",
        silent(ask(&root, SUBVOL_CREATE_V2, &named_v2(0, 1 << 7, b"c"))),
    );
    fs::create_dir_all(top.join("a/dir/deep")).unwrap();
    fs::write(top.join("a/file"), "contents").unwrap();
    let mut dirty = File::create(top.join("a/dirty")).unwrap();
    dirty.write_all(&[b'd'; 50_000]).unwrap();
    let (a, file, dir) = (open("a"), open("a/file"), open("a/dir"));
    let other = File::open("/proc/self/status").unwrap();
    for (source, flags, name) in [
        (a.as_raw_fd(), 0, "s"),
        (a.as_raw_fd(), READ_ONLY, "r"),
        (a.as_raw_fd(), READ_ONLY, "r"),
        (file.as_raw_fd(), 0, "t"),
        (dir.as_raw_fd(), 0, "t"),
        (other.as_raw_fd(), 0, "t"),
        (99_999, 0, "t"),
    ] {
        let args = named_v2(source.into(), flags, name.as_bytes());
        note("snapshot", silent(ask(&root, SNAP_CREATE_V2, &args)));
    }
    for (source, name) in [
        (a.as_raw_fd(), "v1"),
        (a.as_raw_fd(), "v1"),
        (file.as_raw_fd(), "t"),
        (dir.as_raw_fd(), "t"),
        (other.as_raw_fd(), "t"),
        (a.as_raw_fd(), "x/y"),
    ] {
        let args = named_from(source, name.as_bytes());
        note("old snapshot", silent(ask(&root, SNAP_CREATE, &args)));
    }
    assert_eq!(fs::read(top.join("v1/file")).unwrap(), b"contents");
    fs::write(top.join("v1/file"), "other").unwrap();
    assert_eq!(fs::read(top.join("a/file")).unwrap(), b"contents");
    assert_eq!(fs::read(top.join("r/file")).unwrap(), b"contents");
    assert!(fs::write(top.join("r/file"), "other").is_err());
    assert_eq!(fs::read(top.join("r/dirty")).unwrap(), [b'd'; 50_000]);
    let (s, r) = (open("s"), open("r"));
    for of in [&root, &a, &r, &file, &dir] {
        note("getflags", ask(of, GETFLAGS, b""));
        note("setflags", silent(ask(of, SETFLAGS, &numbers(&[4]))));
        let info = ask(of, GET_SUBVOL_INFO, b"");
        // Id, name, parent.
        note("info", info.map(|info| info[..280].to_vec()));
        note("rootref", ask(of, GET_SUBVOL_ROOTREF, b""));
    }
    for (of, id, inode) in [
        (&a, 0, 257),
        (&a, 0, 258),
        (&a, 0, 256),
        (&root, 256, 259),
        (&a, 0, 999),
    ] {
        let answer = ask(of, INO_LOOKUP, &numbers(&[id, inode]));
        note("lookup", answer.map(|answer| text_at(16, answer)));
    }
    for (of, dirid, id) in [
        (&root, 256, 256),
        (&root, 257, 256),
        (&a, 256, 256),
        (&root, 256, 999),
        (&dir, 256, 256),
    ] {
        let answer = ask(of, INO_LOOKUP_USER, &numbers(&[dirid, id]));
        note("user's lookup", answer.map(|answer| text_at(272, answer)));
    }
    note("device", silent(ask(&root, DEV_INFO, &numbers(&[1]))));
    note("device", silent(ask(&root, DEV_INFO, &numbers(&[7]))));
    note("spaces", ask(&root, SPACE_INFO, b""));
    let everything = ask(&root, FS_INFO, &fs_info_of_all());
    note("volume", everything.map(without_generation));
    note("features", ask(&root, GET_FEATURES, b""));
    note("supported", silent(ask(&root, GET_SUPPORTED_FEATURES, b"")));
    note("sync", silent(ask(&root, SYNC, b"")));
    note("wait", silent(ask(&root, WAIT_SYNC, &numbers(&[1 << 40]))));
    File::create(top.join("a/late")).unwrap();
    let started = ask(&root, START_SYNC, b"");
    note("start", silent(started.clone()));
    note("wait", silent(ask(&root, WAIT_SYNC, &started.unwrap())));
    note("wait", silent(ask(&file, WAIT_SYNC, &numbers(&[0]))));
    for range in [
        [0, u64::MAX, 0],
        [0, 4095, 0],
        [0, 0, 0],
        [0, 4096, 0],
        [u64::MAX, 4096, 0],
        [u64::MAX, u64::MAX, 0],
        [u64::MAX - 4096, 8192, 0],
        [8192, u64::MAX, 0],
        // After the end.
        [1 << 50, 4096, 0],
        [1 << 50, u64::MAX, 0],
        [0, u64::MAX, u64::MAX],
    ] {
        // The volume and the device determine the trimmed bytes, and the steps.
        let trimmed = ask(&file, FITRIM, &numbers(&range));
        note(
            &format!("trim {range:?}"),
            trimmed.map(|range| range[..8].to_vec()),
        );
    }
    note("label", silent(ask(&root, SET_FSLABEL, b"of a volume")));
    note("label", ask(&root, GET_FSLABEL, b""));
    note("label", silent(ask(&root, SET_FSLABEL, &[b'x'; 256])));
    for of in [&s, &r, &file] {
        note("received", silent(ask(of, SET_RECEIVED, &[7; 16])));
    }
    let all = (u64::MAX, 255, u64::MAX);
    for args in [
        search(256, (0, 0, 0), all),
        search(0, (257, 0, 0), (257, 255, u64::MAX)),
        search(1, (5, 156, 0), (5, 156, u64::MAX)),
        search(77_777, (0, 0, 0), all),
    ] {
        let answer = ask(&a, TREE_SEARCH, &args);
        note("search", answer.map(|answer| found(&answer).concat()));
    }
    for id in [256, 99_999] {
        note(
            "default",
            silent(ask(&root, DEFAULT_SUBVOL, &numbers(&[id]))),
        );
    }
    note("delete", silent(ask(&root, SNAP_DESTROY, &named(b"a"))));
    note(
        "default",
        silent(ask(&root, DEFAULT_SUBVOL, &numbers(&[0]))),
    );
    note("create", silent(ask(&a, SUBVOL_CREATE, &named(b"inner"))));
    for (of, name) in [
        (&root, "a"),
        (&a, "file"),
        (&a, "dir"),
        (&a, "inner"),
        (&root, "none"),
        (&file, "x"),
        (&root, "r"),
        (&root, "."),
        (&root, ".."),
        (&root, ""),
        (&root, "x/y"),
    ] {
        note(
            &format!("delete {name}"),
            silent(ask(of, SNAP_DESTROY, &named(name.as_bytes()))),
        );
    }
    // It is deleted, but still open.
    let args = named_v2(r.as_raw_fd().into(), 0, b"late");
    note("late", silent(ask(&root, SNAP_CREATE_V2, &args)));
    for id in [258, 3, 99_999] {
        let args = named_v2(0, BY_ID, &numbers(&[id]));
        note("delete by id", silent(ask(&root, SNAP_DESTROY_V2, &args)));
    }
    let mut names: Vec<_> = fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    answers.0.push(format!("{names:?}"));
    answers.0
}

#[test]
fn ioctls_answer_as_the_kernels() {
    if !or_skip("ioctls_answer_as_the_kernels") {
        return;
    }
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("ours.img");
    let copied = std::process::Command::new("cp")
        .arg("--sparse=always")
        .args([&theirs.devices()[0], &image])
        .status();
    assert!(copied.unwrap().success());
    let kernel = theirs.mount("").unwrap();
    let expected = script(kernel.path());
    kernel.unmount().unwrap();

    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let served = Served::start("serving_process", &image, &dir, "");
    let answers = script(&dir);
    served.end();
    assert_same(&answers, &expected);
    KernelVolume::of_files(vec![image], scratch)
        .check()
        .unwrap();
}

#[test]
fn synced_data_shows_in_the_free_space_at_once() {
    if !or_skip("synced_data_shows_in_the_free_space_at_once") {
        return;
    }
    const BYTES: usize = 8 << 20;
    with_ours("", |dir| {
        let root = File::open(dir).unwrap();
        let free = || {
            let shown = rustix::fs::statvfs(dir).unwrap();
            shown.f_bfree * shown.f_bsize
        };
        let before = free();
        fs::write(dir.join("file"), vec![b'x'; BYTES]).unwrap();
        ask(&root, SYNC, b"").unwrap();
        assert!(before - free() >= BYTES as u64);
    });
}

/// REQ-5: an ioctl that fails with an answer.
#[test]
fn more_subvolumes_than_fit_are_told_in_parts() {
    if !or_skip("more_subvolumes_than_fit_are_told_in_parts") {
        return;
    }
    let answers = |top: &Path| {
        let root = File::open(top).unwrap();
        for number in 0..300 {
            let name = named(format!("s{number}").as_bytes());
            ask(&root, SUBVOL_CREATE, &name).unwrap();
        }
        let first = ask_for_all(&root, GET_SUBVOL_ROOTREF, &[]);
        let rest = ask_for_all(&root, GET_SUBVOL_ROOTREF, &first.1[..8]);
        [first, rest]
    };
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let kernel = theirs.mount("").unwrap();
    let expected = answers(kernel.path());
    kernel.unmount().unwrap();
    assert_eq!(expected[0].0, Err(Errno::OVERFLOW));
    with_ours("", |dir| assert!(answers(dir) == expected));
}

#[test]
fn names_that_ioctls_make_and_take_are_seen_at_once() {
    if !or_skip("names_that_ioctls_make_and_take_are_seen_at_once") {
        return;
    }
    with_ours("", |dir| {
        let root = File::open(dir).unwrap();
        let path = dir.join("a");
        for round in 0..5 {
            assert!(!path.exists(), "{round}");
            ask(&root, SUBVOL_CREATE, &named(b"a")).unwrap();
            assert!(path.is_dir(), "{round}");
            fs::write(path.join("file"), b"x").unwrap();
            fs::rename(&path, dir.join("b")).unwrap();
            assert!(!path.exists(), "{round}");
            // A number so high that no concurrent test gets it.
            let source = File::open(dir.join("b")).unwrap();
            let closed = fcntl_dupfd_cloexec(&source, 1000).unwrap().as_raw_fd();
            drop(source);
            let args = named_v2(closed.into(), 0, b"a");
            assert_eq!(ask(&root, SNAP_CREATE_V2, &args), Err(Errno::INVAL));
            let source = File::open(dir.join("b")).unwrap();
            let args = named_v2(source.as_raw_fd().into(), 0, b"a");
            ask(&root, SNAP_CREATE_V2, &args).unwrap();
            assert_eq!(fs::read(path.join("file")).unwrap(), b"x", "{round}");
            drop(source);
            for name in ["a", "b"] {
                ask(&root, SNAP_DESTROY, &named(name.as_bytes())).unwrap();
                assert!(!dir.join(name).exists(), "{round}");
            }
        }
    });
}

#[test]
fn a_listing_that_was_read_before_is_not_what_is_listed_after_an_ioctl() {
    if !or_skip("a_listing_that_was_read_before_is_not_what_is_listed_after_an_ioctl") {
        return;
    }
    with_ours("", |dir| {
        for number in 0..50 {
            fs::write(dir.join(format!("f{number}")), b"").unwrap();
        }
        let root = File::open(dir).unwrap();
        let mut listed = Dir::read_from(&root).unwrap();
        let mut count = || {
            listed.rewind();
            listed.by_ref().map(Result::unwrap).count()
        };
        for _ in 0..3 {
            assert_eq!(count(), 52);
        }
        ask(&root, SUBVOL_CREATE, &named(b"new")).unwrap();
        assert_eq!(count(), 53);
        let args = named_v2(root.as_raw_fd().into(), 0, b"copy");
        ask(&root, SNAP_CREATE_V2, &args).unwrap();
        assert_eq!(count(), 54);
        ask(&root, SNAP_DESTROY, &named(b"new")).unwrap();
        assert_eq!(count(), 53);
    });
}

#[test]
fn a_mount_made_read_only_is_left_alone_once_it_was_synced() {
    if !or_skip("a_mount_made_read_only_is_left_alone_once_it_was_synced") {
        return;
    }
    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let dir = made.dir().join("ours");
    fs::create_dir(&dir).unwrap();
    let image = &made.devices()[0];
    let served = Served::start("serving_process", image, &dir, "strictatime");
    let file = dir.join("file");
    // A descriptor that writes is here at no time: a thread of another test that starts a program would copy it.
    let mut shell = Command::new("sh");
    let written = shell.args(["-c", "printf contents >\"$0\""]).arg(&file);
    assert!(written.status().unwrap().success());
    mount_remount(&dir, MountFlags::RDONLY, "").unwrap();
    let root = File::open(&dir).unwrap();
    ask(&root, SYNC, b"").unwrap();
    let left = fs::read(image).unwrap();
    // This read would update the access time.
    let opened = File::open(&file).unwrap();
    assert_eq!(opened.read_at(&mut [0; 8], 0).unwrap(), 8);
    ask(&root, SYNC, b"").unwrap();
    assert!(fs::read(image).unwrap() == left);
    drop((root, opened));
    served.end();
    made.check().unwrap();
}

#[test]
fn the_root_can_be_named_by_a_descriptor_before_it_was_looked_at() {
    if !or_skip("the_root_can_be_named_by_a_descriptor_before_it_was_looked_at") {
        return;
    }
    for words in ["", "fakeroot"] {
        with_ours(words, |dir| {
            let root = File::open(dir).unwrap();
            let args = named_v2(root.as_raw_fd().into(), 0, b"s");
            ask(&root, SNAP_CREATE_V2, &args).unwrap();
            assert!(dir.join("s").is_dir());
        });
    }
}

#[test]
fn trim_says_how_much_was_trimmed() {
    if !or_skip("trim_says_how_much_was_trimmed") {
        return;
    }
    with_ours("", |dir| {
        let dir = File::open(dir).unwrap();
        let trimmed = |range: [u64; 3]| {
            let answer = ask(&dir, FITRIM, &numbers(&range)).unwrap();
            let len: [u8; 8] = answer[8..16].try_into().unwrap();
            assert!(answer[..8] == range[0].to_ne_bytes() && answer[16..] == [0; 8]);
            u64::from_ne_bytes(len)
        };
        let all = trimmed([0, u64::MAX, 0]);
        // Unallocated space is trimmed only once.
        let again = trimmed([0, u64::MAX, 0]);
        assert!(0 < again && again < all, "{again} of {all}");
        assert_eq!(trimmed([1 << 50, u64::MAX, 0]), 0);
        let sizes = (1..=8).map(|part| trimmed([0, again * part / 4, 0]));
        let sizes: Vec<u64> = sizes.collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
    });
}

#[test]
fn many_searches_for_holes_at_once_all_get_their_answer() {
    if !or_skip("many_searches_for_holes_at_once_all_get_their_answer") {
        return;
    }
    const DATA: u64 = 512 << 10;
    for (words, searchers) in [
        ("", 30),
        ("", 100),
        ("transport=classic", 30),
        ("writeback", 30),
    ] {
        with_ours(words, |dir| {
            thread::scope(|scope| {
                for number in 0..searchers {
                    scope.spawn(move || {
                        let file = File::create_new(dir.join(format!("f{number}"))).unwrap();
                        file.set_len(1 << 20).unwrap();
                        for round in 0..4 {
                            // The data must be found whether it is mapped or not, which is unknown before the search.
                            file.write_all_at(&[round], DATA).unwrap();
                            let found = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
                            // With too many searchers, some get an answer with more data than there is.
                            let is_exact = found == DATA;
                            assert!(is_exact || searchers > 30 && found == 0, "{words}: {found}");
                        }
                    });
                }
                // Snapshots also wait for the writeback.
                scope.spawn(move || {
                    let root = File::open(dir).unwrap();
                    for number in 0..2 {
                        let args =
                            named_v2(root.as_raw_fd().into(), 0, format!("s{number}").as_bytes());
                        ask(&root, SNAP_CREATE_V2, &args).unwrap();
                        ask(&root, SYNC, &[]).unwrap();
                    }
                });
            });
        });
    }
}

/// Not a test: the process that serves mounts of tests.
#[test]
#[ignore = "run by other tests"]
fn serving_process() {
    served::serve();
}

/// Does something in a mount of a new volume by us, and has it checked.
fn with_ours(words: &str, play: impl FnOnce(&Path)) {
    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let dir = made.dir().join("ours");
    fs::create_dir(&dir).unwrap();
    let served = Served::start("serving_process", &made.devices()[0], &dir, words);
    play(&dir);
    served.end();
    made.check().unwrap();
}

/// A file mapped to be written to.
struct Mapped {
    start: *mut u8,
    len: usize,
}

impl Mapped {
    fn new(file: &File, len: usize) -> Mapped {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address range.
        #[allow(unsafe_code)]
        let start = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, 0) };
        let start = start.unwrap().cast();
        Mapped { start, len }
    }

    fn store(&mut self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: it is within the mapping, which no other thread uses.
        #[allow(unsafe_code)]
        unsafe {
            self.start.add(at).write_volatile(byte);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and nothing uses it after this.
        #[allow(unsafe_code)]
        unsafe {
            munmap(self.start.cast(), self.len).unwrap();
        }
    }
}

#[test]
fn data_that_a_mapping_changed_is_no_hole_and_is_in_a_snapshot() {
    if !or_skip("data_that_a_mapping_changed_is_no_hole_and_is_in_a_snapshot") {
        return;
    }
    for words in ["noopens", "opens", "writeback"] {
        with_ours(words, |dir| assert_a_mapping_is_seen(words, dir));
    }
}

fn assert_a_mapping_is_seen(words: &str, dir: &Path) {
    let root = File::open(dir).unwrap();
    ask(&root, SUBVOL_CREATE, &named(b"a")).unwrap();
    let file = File::create_new(dir.join("a/file")).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut mapped = Mapped::new(&file, 1 << 20);
    mapped.store(512 << 10, 1);
    let sought = |from| rustix::fs::seek(&file, from).unwrap();
    assert_eq!(sought(SeekFrom::Data(0)), 512 << 10, "{words}");
    mapped.store(516 << 10, 1);
    assert_eq!(sought(SeekFrom::Hole(512 << 10)), 520 << 10, "{words}");
    mapped.store(768 << 10, 1);
    let source = File::open(dir.join("a")).unwrap();
    let args = named_v2(source.as_raw_fd().into(), READ_ONLY, b"s");
    ask(&root, SNAP_CREATE_V2, &args).unwrap();
    let kept = fs::read(dir.join("s/file")).unwrap();
    let stored = kept.iter().filter(|&&byte| byte == 1).count();
    assert_eq!((kept.len(), stored), (1 << 20, 3), "{words}");
}
