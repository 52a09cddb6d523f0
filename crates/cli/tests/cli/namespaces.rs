//! Commands reach a mount from other network namespaces, where another process may listen under its server's
//! address.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, Uid, kill_process};
use rustix::thread::{UnshareFlags, set_thread_res_uid, unshare_unsafe};

use ubtrfs_sim::{is_root_or_skip, skip_optional};

use crate::callers::{Program, STRANGER, USER, said};
use crate::mounted::Mounted;
use crate::process::{empty_volume, fail, succeed};

/// The length of a client's greeting.
const GREETING_BYTES: usize = 20;

fn in_another_network<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let alone = || {
        // SAFETY: this does not unshare the table of file descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(alone).join().unwrap())
}

/// Returns the words of a command that only the server can run.
fn stats(dir: &Path) -> [OsString; 3] {
    ["filesystem".into(), "stats".into(), dir.into()]
}

/// Returns the abstract name and the path in a mount's control attribute.
fn address(dir: &Path) -> (Vec<u8>, PathBuf) {
    let value = xattr::get(dir, "system.ubtrfs.control").unwrap().unwrap();
    let zero = value.iter().position(|&byte| byte == 0);
    let zero = zero.expect("there is a path");
    let path = OsStr::from_bytes(&value[zero + 1..]);
    (value[..zero].to_vec(), path.into())
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Creates a mount as root. Returns None, and prints that, if its namespace cannot be left.
fn roots_mount() -> Option<Mounted> {
    if !is_root_or_skip() {
        return None;
    }
    Mounted::new("rw", |_| {})
}

/// Accepts a client as the server would. Returns how many bytes follow its greeting.
fn answer_in_place(listener: &UnixListener) -> usize {
    let (mut client, _) = listener.accept().unwrap();
    answer(&mut client).unwrap_or(0)
}

/// Answers a client. Returns how many bytes it sends after its greeting, or None if it sends no greeting.
fn answer(client: &mut UnixStream) -> Option<usize> {
    let mut greeting = [0; GREETING_BYTES];
    client.read_exact(&mut greeting).ok()?;
    // The client may have disconnected.
    let _ = client.write_all(b"!");
    Some(client.read_to_end(&mut Vec::new()).unwrap_or(0))
}

#[test]
fn root_reaches_its_mount_from_another_network_namespace_and_a_stranger_does_not() {
    let (Some(mounted), Some(program)) = (roots_mount(), Program::new()) else {
        return;
    };
    fs::set_permissions(&mounted.dir, Permissions::from_mode(0o777)).unwrap();
    let (_, path) = address(&mounted.dir);
    in_another_network(|| {
        let create: [OsString; 3] = ["subvolume".into(), "create".into(), "-q".into()];
        succeed(create.into_iter().chain([mounted.dir.join("new").into()]));
        succeed(stats(&mounted.dir));
        assert!(mounted.dir.join("new").is_dir());
        let refused = program.run(STRANGER, stats(&mounted.dir));
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("was mounted by user 0"));
        // Connecting without our client is also refused.
        let uid = Uid::from_raw(STRANGER);
        set_thread_res_uid(uid, uid, uid).unwrap();
        let error = UnixStream::connect(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
    mounted.unmount();
    assert!(!path.exists());
}

#[test]
fn a_user_reaches_his_mount_from_other_network_and_user_namespaces() {
    let Some(program) = Program::new() else {
        return;
    };
    let (_scratch, image) = empty_volume();
    let folder = program.folder();
    let dir = folder.join("mnt");
    let runtime = folder.join("runtime");
    let own_image = folder.join("v.img");
    fs::copy(&image, &own_image).unwrap();
    for path in [&dir, &runtime] {
        fs::create_dir(path).unwrap();
    }
    for path in [&dir, &runtime, &own_image] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let run = |words: &[OsString]| -> Output {
        let mut command = program.of(USER);
        let command = command.args(words).env("XDG_RUNTIME_DIR", &runtime);
        command.output().unwrap()
    };
    let mounted = run(&["mount".into(), own_image.into(), dir.clone().into()]);
    assert!(mounted.status.success(), "{}", said(&mounted));
    in_another_network(|| {
        let reached = run(&stats(&dir));
        assert!(reached.status.success(), "{}", said(&reached));
        assert!(!program.run(STRANGER, stats(&dir)).status.success());
    });
    // Runs as root of a new user namespace, in which no other user has a number.
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--user", "--map-root-user", "--net", "--"]);
    let elsewhere = elsewhere.arg(program.path()).args(stats(&dir));
    let reached = elsewhere.uid(USER).gid(USER).output();
    let reached = reached.unwrap();
    let message = said(&reached);
    if message.contains("unshare failed") {
        skip_optional("users may have no user namespaces");
    } else {
        assert!(reached.status.success(), "{message}");
    }
    let unmounted = run(&["umount".into(), dir.into()]);
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    assert_eq!(fs::read_dir(runtime.join("ubtrfs")).unwrap().count(), 0);
}

#[test]
fn leftovers_of_a_killed_server_are_swept_by_the_next() {
    let Some(mounted) = roots_mount() else {
        return;
    };
    let (_, path) = address(&mounted.dir);
    let server = UnixStream::connect(&path).unwrap();
    let pid = socket_peercred(&server).unwrap().pid;
    kill_process(pid, Signal::KILL).unwrap();
    // The connection ends when the last process that holds it ends.
    let _ = (&server).read_to_end(&mut Vec::new());
    let still_served = || {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    while still_served() {
        thread::yield_now();
    }
    assert!(is_socket(&path));
    let next = Mounted::new("rw", |_| {}).unwrap();
    assert!(!is_socket(&path));
    let (_, path) = address(&next.dir);
    assert!(is_socket(&path));
}

#[test]
fn nobody_at_the_path_of_a_mount_is_taken_for_its_server() {
    let Some(mounted) = roots_mount() else {
        return;
    };
    let (_, path) = address(&mounted.dir);
    fs::remove_file(&path).unwrap();
    // A process of root: its user alone does not distinguish it from the server.
    let impostor = UnixListener::bind(&path).unwrap();
    // When other tests mount, their servers check whether a process listens, and send nothing.
    let taken = thread::spawn(move || {
        let mut clients = impostor.incoming();
        clients.find_map(|client| answer(&mut client.unwrap()))
    });
    in_another_network(|| {
        fail(stats(&mounted.dir), "another process answers instead");
    });
    assert_eq!(taken.join().unwrap(), Some(0));
    // Where the real server can be reached, the client uses it.
    succeed(stats(&mounted.dir));
    // Another test's mount may have removed the socket, as no process listens on it.
    let _ = fs::remove_file(&path);
    in_another_network(|| {
        fail(stats(&mounted.dir), "No such file or directory");
    });
}

#[test]
fn a_process_with_the_name_in_another_network_namespace_is_not_taken_for_the_server() {
    let Some(mounted) = roots_mount() else {
        return;
    };
    let (name, path) = address(&mounted.dir);
    let name = SocketAddr::from_abstract_name(name).unwrap();
    in_another_network(|| {
        let impostor = UnixListener::bind_addr(&name).unwrap();
        thread::scope(|scope| {
            let taken = scope.spawn(|| answer_in_place(&impostor));
            succeed(stats(&mounted.dir));
            assert_eq!(taken.join().unwrap(), 0);
        });
    });
    in_another_network(|| {
        let uid = Uid::from_raw(STRANGER);
        let impostor = thread::scope(|scope| {
            let listening = scope.spawn(|| {
                set_thread_res_uid(uid, uid, uid).unwrap();
                UnixListener::bind_addr(&name).unwrap()
            });
            listening.join().unwrap()
        });
        succeed(stats(&mounted.dir));
        let _ = fs::remove_file(&path);
        let message = format!("a process of user {STRANGER} answers instead");
        fail(stats(&mounted.dir), &message);
        drop(impostor);
    });
}

#[test]
fn without_a_folder_of_the_user_commands_reach_a_mount_from_its_own_network_namespace_only() {
    let Some(program) = Program::new() else {
        return;
    };
    let (_scratch, image) = empty_volume();
    let dir = program.folder().join("mnt");
    let own_image = program.folder().join("v.img");
    fs::copy(&image, &own_image).unwrap();
    fs::create_dir(&dir).unwrap();
    for path in [&dir, &own_image] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let run = |words: &[OsString]| -> Output {
        let mut command = program.of(USER);
        // The folder belongs to another user.
        let command = command.args(words).env("XDG_RUNTIME_DIR", "/run");
        command.output().unwrap()
    };
    let mounted = run(&["mount".into(), own_image.into(), dir.clone().into()]);
    assert!(mounted.status.success(), "{}", said(&mounted));
    let here = run(&stats(&dir));
    let elsewhere = in_another_network(|| run(&stats(&dir)));
    let unmounted = run(&["umount".into(), dir.into()]);
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    assert!(here.status.success(), "{}", said(&here));
    assert_eq!(elsewhere.status.code(), Some(1));
    let message = said(&elsewhere);
    assert!(message.contains("cannot reach the process"), "{message}");
    assert!(message.contains("network namespace"), "{message}");
}
