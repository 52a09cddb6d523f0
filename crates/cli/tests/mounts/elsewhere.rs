//! Mounts that also exist in other namespaces, and mounts whose server does not respond.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{fstat, minor};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen, mount_bind,
};
use rustix::process::{Pid, Signal};
use ubtrfs_sim::kernel;

use crate::other_namespace::Elsewhere;
use crate::served::{
    Place, Server, alone, assert_ok, can_mount, ended_within_a_moment, types_at, ubtrfs,
};

impl Place {
    /// Unmounts with a command. Returns None if the command does not end within a moment.
    fn umount_by(&self, command: &mut Command) -> Option<Output> {
        command.arg(&self.mountpoint);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        ended_within_a_moment(Pid::from_child(&child)).then(|| child.wait_with_output().unwrap())
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a program as in a container: it sees no other processes, and its mounts are not visible outside.
fn in_a_container(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(program);
    command
}

#[test]
fn umount_does_not_wait_for_a_mount_that_lives_on_elsewhere() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for options in ["transport=auto", "transport=classic"] {
        let mut server = place.serve_with(options);
        let elsewhere = Elsewhere::keeping(&place.mountpoint);
        fs::write(place.mountpoint.join(options), "written\n").unwrap();
        let umount = place.umount_by(ubtrfs().arg("umount")).expect("it waits");
        assert!(umount.status.success());
        let said = said(&umount);
        let named = format!("process {} (sh) has it on", elsewhere.pid());
        assert!(said.contains("mounted elsewhere"), "{said}");
        assert!(said.contains(&named), "{said}");
        assert!(types_at(&place.mountpoint).is_empty());
        let taken = ubtrfs()
            .arg("mount")
            .args([&place.image, &place.mountpoint])
            .output()
            .unwrap();
        assert!(!taken.status.success());
        server.signal(Signal::KILL);
        server.end().unwrap();
        drop(elsewhere);
        assert_eq!(place.read(options), "written\n");
    }
}

#[test]
fn umount_waits_for_a_mount_elsewhere_if_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let elsewhere = Elsewhere::keeping(&place.mountpoint);
    let umount = place.umount_by(ubtrfs().args(["umount", "--wait=0.1"]));
    let umount = umount.expect("it waits for longer");
    assert_eq!(umount.status.code(), Some(1));
    let said = said(&umount);
    assert!(
        said.contains("ERROR: ") && said.contains("mounted elsewhere"),
        "{said}"
    );
    assert!(types_at(&place.mountpoint).is_empty());
    drop(elsewhere);
    assert!(server.end().expect("it lives on").success());

    let mut server = place.serve();
    let elsewhere = Elsewhere::keeping(&place.mountpoint);
    let mut umount = ubtrfs();
    let mut umount = umount
        .args(["umount", "--wait"])
        .arg(&place.mountpoint)
        .spawn()
        .unwrap();
    drop(elsewhere);
    assert!(umount.wait().unwrap().success());
    // The image is free already, not only soon.
    assert_ok(ubtrfs().args(["mkfs", "-q", "-f"]).arg(&place.image));
    assert!(server.end().expect("it lives on").success());
}

#[test]
fn the_server_ends_with_the_last_mount_elsewhere() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let elsewhere = Elsewhere::keeping(&place.mountpoint);
    assert!(place.umount_by(ubtrfs().arg("umount")).is_some());
    drop(elsewhere);
    assert!(server.end().expect("it lives on").success());
}

#[test]
fn umount_in_a_container_makes_durable_what_lives_on_outside() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    let mut umount = in_a_container(Path::new(env!("CARGO_BIN_EXE_ubtrfs")));
    let umount = place.umount_by(umount.arg("umount")).expect("it waits");
    assert!(umount.status.success(), "{}", said(&umount));
    let said = said(&umount);
    assert!(
        said.contains("durable") && said.contains("cannot be seen"),
        "{said}"
    );
    assert_eq!(types_at(&place.mountpoint), ["fuse.ubtrfs"]);
    server.signal(Signal::KILL);
    server.end().unwrap();
    place.umount();
    assert_eq!(place.read("file"), "written\n");
}

#[test]
fn an_image_is_free_when_umount_returns_in_a_container() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let script = r#"set -e
        for round in 1 2 3; do
            "$0" mount "$1" "$2"
            head -c 20000000 /dev/zero >"$2/file$round"
            "$0" umount "$2"
            flock -n "$1" true
        done"#;
    let mut container = in_a_container(Path::new("sh"));
    container
        .args(["-c", script, env!("CARGO_BIN_EXE_ubtrfs")])
        .arg(&place.image);
    let ended = place.umount_by(&mut container).expect("it waits");
    assert!(
        ended.status.success() && ended.stderr.is_empty(),
        "{}",
        said(&ended)
    );
    assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
    assert_eq!(place.read("file3").len(), 20_000_000);
}

#[test]
fn umount_of_a_bind_mount_says_nothing_and_leaves_the_other() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let bound = place.scratch.path().join("bound");
    fs::create_dir(&bound).unwrap();
    mount_bind(&place.mountpoint, &bound).unwrap();
    let first = ubtrfs().arg("umount").arg(&bound).output().unwrap();
    assert!(
        first.status.success() && first.stderr.is_empty(),
        "{}",
        said(&first)
    );
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    mount_bind(&place.mountpoint, &bound).unwrap();
    let first = place.umount_by(ubtrfs().arg("umount")).expect("it waits");
    assert!(
        first.status.success() && first.stderr.is_empty(),
        "{}",
        said(&first)
    );
    assert_eq!(fs::read(bound.join("file")).unwrap(), b"written\n");
    assert_ok(ubtrfs().arg("umount").arg(&bound));
    assert!(server.end().unwrap().success());
    assert_eq!(place.read("file"), "written\n");
}

#[test]
fn umount_says_that_the_server_is_stopped_and_does_not_wait() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    server.stop();
    let umount = place.umount_by(ubtrfs().arg("umount"));
    server.signal(Signal::CONT);
    let umount = umount.expect("it waits");
    assert_eq!(umount.status.code(), Some(1));
    assert!(said(&umount).contains("is stopped"), "{}", said(&umount));
    assert!(server.end().unwrap().success());
}

/// Creates file systems with all device numbers below this one, so that the next mount gets it. They last as
/// long as the returned descriptors. Returns None if another mount has the number.
fn numbers_below(number: u32) -> Option<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    loop {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        fsconfig_create(&context).unwrap();
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = fsmount(&context, flags, MountAttrFlags::empty()).unwrap();
        let found = minor(fstat(&mount).unwrap().st_dev);
        if found >= number {
            return (found == number).then_some(taken);
        }
        taken.push(mount);
    }
}

#[test]
fn umount_waits_for_its_own_server_beside_one_that_had_the_number_before() {
    const TRIES: usize = 20;
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let number = |place: &Place| fs::metadata(&place.mountpoint).unwrap().dev();
    let [before, place] = [(); 2].map(|()| Place::new(256 << 20));
    for _ in 0..TRIES {
        let mut stopped = before.serve();
        let of_stopped = number(&before);
        stopped.stop();
        before
            .umount_by(ubtrfs().arg("umount"))
            .expect("it does not wait");
        let below = numbers_below(minor(of_stopped));
        let mut server = place.serve();
        drop(below);
        let is_same = number(&place) == of_stopped;
        fs::write(place.mountpoint.join("file"), vec![1; 16 << 20]).unwrap();
        let umount = place.umount_by(ubtrfs().arg("umount"));
        let ended = server.child.try_wait().unwrap();
        stopped.signal(Signal::CONT);
        let umount = umount.expect("it waits");
        assert!(umount.status.success(), "{}", said(&umount));
        assert!(ended.expect("umount has not waited").success());
        assert!(stopped.end().unwrap().success());
        if is_same {
            return;
        }
    }
    panic!("other mounts take each number");
}

#[test]
fn umount_in_a_container_says_that_the_server_does_not_answer() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve_with("transport=classic");
    server.stop();
    let mut umount = in_a_container(Path::new(env!("CARGO_BIN_EXE_ubtrfs")));
    let umount = place.umount_by(umount.arg("umount"));
    server.signal(Signal::CONT);
    let umount = umount.expect("it waits");
    assert_eq!(umount.status.code(), Some(1));
    assert!(
        said(&umount).contains("does not answer"),
        "{}",
        said(&umount)
    );
    place.umount();
    assert!(server.end().unwrap().success());
}

/// Leaves a mount without its server, as after a crash.
fn kill_server(place: &Place, options: &str) {
    let mut server: Server = place.serve_with(options);
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    let file = File::open(place.mountpoint.join("file")).unwrap();
    file.sync_all().unwrap();
    server.signal(Signal::KILL);
    server.end().unwrap();
}

#[test]
fn a_mount_whose_server_was_killed_is_unmounted_at_once() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for with_copy in [false, true] {
        kill_server(&place, "rw");
        let elsewhere = with_copy.then(|| Elsewhere::keeping(&place.mountpoint));
        let umount = place.umount_by(ubtrfs().arg("umount")).expect("it waits");
        assert!(umount.status.success(), "{}", said(&umount));
        assert!(types_at(&place.mountpoint).is_empty());
        assert_eq!(place.read("file"), "written\n");
        drop(elsewhere);
    }
}

#[test]
fn a_mount_whose_server_was_killed_is_not_remounted() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    kill_server(&place, "rw");
    for target in [&place.mountpoint, &place.image] {
        let remount = ubtrfs()
            .args(["mount", "-o", "remount,ro"])
            .arg(target)
            .output()
            .unwrap();
        assert_eq!(remount.status.code(), Some(1));
        let said = said(&remount);
        assert!(said.contains("has ended: unmount"), "{said}");
    }
    place.umount();
}

/// Returns whether a process waits for a server's answer.
fn is_asking(process: u32) -> bool {
    let waits = fs::read_to_string(format!("/proc/{process}/wchan"));
    waits.is_ok_and(|waits| waits.contains("request_wait_answer"))
}

#[test]
fn a_server_that_dies_while_it_is_asked_has_ended() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for options in ["transport=auto", "transport=classic"] {
        let mut server = place.serve_with(options);
        server.signal(Signal::STOP);
        let mut remount = ubtrfs();
        let remount = remount
            .args(["mount", "-o", "remount,ro"])
            .arg(&place.mountpoint);
        let remount = remount.stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while !is_asking(remount.id()) && start.elapsed() < Duration::from_secs(10) {
            thread::yield_now();
        }
        server.signal(Signal::KILL);
        server.end().unwrap();
        let remount = remount.wait_with_output().unwrap();
        assert_eq!(remount.status.code(), Some(1));
        let said = said(&remount);
        assert!(said.contains("has ended: unmount"), "{said}");
        place.umount();
    }
}

#[test]
fn a_mount_whose_server_was_killed_makes_way_for_a_new_one() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let with_loop = kernel::or_skip("a killed mount by a loop device").then_some("loop");
    for options in ["rw", "ro,noloop"].into_iter().chain(with_loop) {
        kill_server(&place, "rw");
        let again = ubtrfs()
            .args(["mount", "-o", options])
            .args([&place.image, &place.mountpoint])
            .output()
            .unwrap();
        assert!(again.status.success(), "{}", said(&again));
        assert!(said(&again).contains("has ended"), "{}", said(&again));
        assert_eq!(types_at(&place.mountpoint).len(), 1);
        assert_eq!(
            fs::read(place.mountpoint.join("file")).unwrap(),
            b"written\n"
        );
        place.umount();
    }
}
