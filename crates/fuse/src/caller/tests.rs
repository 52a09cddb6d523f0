//! The rights of processes.

use super::*;

#[test]
fn this_process_is_seen_as_it_is() {
    let uid = rustix::process::geteuid().as_raw();
    let this = caller_of(std::process::id(), uid, 0);
    assert_eq!(this.is_administrator(), uid == 0);
    assert!(this.clone().as_superuser().is_administrator());
    // No process has this number.
    let nobody = caller_of(u32::MAX, 0, 0);
    assert!(!nobody.is_administrator());
}

#[test]
fn the_peer_of_a_socket_is_its_maker() {
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let peer = Peer::of(&socket).unwrap();
    assert_eq!(peer.pid, std::process::id());
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    Peer::of(std::fs::File::open("/dev/null").unwrap()).unwrap_err();
}
