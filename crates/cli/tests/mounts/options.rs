//! Our own mount options, and their effects on the process and the kernel's mount table.

use std::fs;
use std::io::ErrorKind;
use std::process::Output;
use std::time::Instant;

use crate::served::{MOMENT, Place, Server, alone, can_mount, ubtrfs};

/// Counts the threads that read requests, plus the thread that waits for them to end.
fn serving_threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let names = tasks.flatten().map(|task| {
        // The thread may have ended.
        fs::read_to_string(task.path().join("comm")).unwrap_or_default()
    });
    names.filter(|name| name == "ubtrfs-fuse\n").count()
}

fn refused(place: &Place, options: &str) -> String {
    let Output { status, stderr, .. } = ubtrfs()
        .args(["mount", "-f", "-o", options])
        .args([&place.image, &place.mountpoint])
        .output()
        .unwrap();
    assert!(!status.success(), "{options}");
    String::from_utf8(stderr).unwrap()
}

/// Returns the mount's line in the kernel's mount table.
fn line_of(place: &Place) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mountpoint = format!(" {} ", place.mountpoint.display());
    let line = table.lines().find(|line| line.contains(&mountpoint));
    line.expect("it is mounted").to_owned()
}

#[test]
fn as_many_threads_read_requests_as_asked_for() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for (word, threads) in [("threads=1", 1), ("threads=7", 7), ("thread_pool=3", 3)] {
        let mut server = place.serve_with(&format!("transport=classic,{word}"));
        let until = Instant::now() + MOMENT;
        // A request that leaves no thread reading starts another one, which ends with a later request.
        for number in 0.. {
            let none = fs::metadata(place.mountpoint.join(format!("none{number}")));
            assert_eq!(none.unwrap_err().kind(), ErrorKind::NotFound);
            let serving = serving_threads(&server);
            if serving == threads + 1 {
                break;
            }
            assert!(Instant::now() < until, "{word}: {serving} threads");
        }
        fs::write(place.mountpoint.join("file"), word).unwrap();
        assert_eq!(
            fs::read_to_string(place.mountpoint.join("file")).unwrap(),
            word
        );
        place.umount();
        assert!(server.end().unwrap().success());
    }
}

#[test]
fn the_table_shows_the_source_that_was_asked_for() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let _server = place.serve_with("fsname=pool of mine,subtype=ubtrfs");
    let line = line_of(&place);
    assert!(
        line.contains(r" - fuse.ubtrfs pool\040of\040mine "),
        "{line}"
    );
    place.umount();
}

#[test]
fn with_fakeroot_a_mount_is_for_its_maker_and_the_kernel_checks_nothing() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for (options, is_open) in [("fakeroot", false), ("fakeroot,default_permissions", true)] {
        let _server = place.serve_with(options);
        let line = line_of(&place);
        for word in ["default_permissions", "allow_other"] {
            assert_eq!(line.contains(word), is_open, "{options}: {line}");
        }
        place.umount();
    }
}

#[test]
fn options_that_cannot_be_kept_are_refused() {
    let place = Place::new(256 << 20);
    for (options, wanted) in [
        ("blkdev", "mount option 'blkdev' needs both"),
        ("loglevel=chatty", "bad value 'chatty'"),
        ("threads=0", "bad value '0'"),
        ("transport=pigeon", "bad value 'pigeon'"),
        ("subtype=other", "'subtype'"),
        ("loop,fsname=pool", "'loop' and 'fsname' exclude each other"),
        ("log=/nowhere/at/all", "cannot log to '/nowhere/at/all'"),
    ] {
        let said = refused(&place, options);
        assert!(said.contains(wanted), "{options}: {said}");
    }
}

#[test]
fn server_keeps_the_capabilities_that_it_uses() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let of = |process: &str, field: &str| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let mut lines = status.lines();
        let text = lines.find_map(|line| line.strip_prefix(field)).unwrap();
        u64::from_str_radix(text.trim(), 16).unwrap()
    };
    let bit = |name: u32| 1u64 << name;
    // CAP_SYS_ADMIN, CAP_SYS_PTRACE; CAP_NET_ADMIN, CAP_SYS_MODULE, CAP_SYS_BOOT, CAP_SETUID, CAP_MKNOD.
    let used = bit(21) | bit(19);
    let unused = bit(12) | bit(16) | bit(22) | bit(7) | bit(27);
    let ours = of("self", "CapPrm:");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let task = format!(
            "{}/task/{}",
            server.child.id(),
            task.unwrap().file_name().display()
        );
        for field in ["CapPrm:", "CapEff:"] {
            let kept = of(&task, field);
            assert_eq!(kept & used, ours & used, "{task} {field}");
            assert_eq!(kept & unused, 0, "{task} {field}");
        }
        threads += 1;
    }
    assert!(threads > 1);
    place.umount();
    assert!(server.end().is_some());
}
