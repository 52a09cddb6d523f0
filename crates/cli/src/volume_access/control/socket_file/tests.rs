//! Tests that folders of other users are refused, and that sockets of dead servers are removed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn files_of_killed_servers_are_swept_and_others_stay() {
    let base = tempfile::tempdir().unwrap();
    let (listener, left_over) = SocketFile::listen_below(base.path()).unwrap();
    let left_over_path = left_over.path().to_owned();
    std::mem::forget(left_over);
    let (alive, alive_file) = SocketFile::listen_below(base.path()).unwrap();
    // Its server counts as alive as long as the socket is open.
    assert!(left_over_path.exists());
    drop(listener);
    let foreign = base.path().join(FOLDER).join(format!("foreign{SUFFIX}"));
    fs::write(&foreign, b"").unwrap();
    // A child process of another test also holds the socket until its exec.
    let begun = Instant::now();
    while left_over_path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        SocketFile::listen_below(base.path()).unwrap();
    }
    assert!(foreign.exists());
    UnixStream::connect(alive_file.path()).unwrap();
    drop(alive);
}

#[test]
fn a_server_that_has_no_room_for_clients_is_no_left_over() {
    let base = tempfile::tempdir().unwrap();
    let (_listener, file) = SocketFile::listen_below(base.path()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        );
        let socket = socket.unwrap();
        let address = SocketAddrUnix::new(file.path()).unwrap();
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(error) => break assert_eq!(error, Errno::AGAIN),
        }
        if waiting.len() == 1000 {
            return;
        }
    }
    let (_other, _other_file) = SocketFile::listen_below(base.path()).unwrap();
    assert!(file.path().exists());
}

#[test]
fn a_file_goes_with_its_server_and_is_its_users_alone() {
    let base = tempfile::tempdir().unwrap();
    let (_listener, file) = SocketFile::listen_below(base.path()).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&base.path().join(FOLDER)), 0o700);
    assert_eq!(mode(file.path()), 0o600);
    let path = file.path().to_owned();
    drop(file);
    assert!(!path.exists());
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join(FOLDER);
    let is_refused = || {
        let error = SocketFile::listen_below(base.path()).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
            ),
            "{error}"
        );
    };
    let open_to = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open_to(base.path(), 0o777);
    is_refused();
    assert!(!folder.exists());
    open_to(base.path(), 0o755);
    fs::create_dir(&folder).unwrap();
    open_to(&folder, 0o770);
    is_refused();
    open_to(&folder, 0o755);
    SocketFile::listen_below(base.path()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::remove_dir(&folder).unwrap();
    symlink(elsewhere.path(), &folder).unwrap();
    is_refused();
    if geteuid().is_root() {
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(1002), None).unwrap();
        is_refused();
    }
}

#[test]
fn a_path_that_no_client_could_say_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let long = base.path().join("x".repeat(100));
    fs::create_dir(&long).unwrap();
    SocketFile::listen_below(&long).unwrap_err();
    assert_eq!(fs::read_dir(long.join(FOLDER)).unwrap().count(), 0);
}
