//! Addresses, greetings and requests as bytes.

use super::*;

fn request() -> Request {
    Request {
        device: (0, 1 << 20),
        zone: b"Europe/Paris".to_vec(),
        is_unwritten: true,
        mountpoint: b"/mnt".to_vec(),
        paths: vec![MountPath {
            written: b"a\xff".to_vec(),
            path: b"/sub/a\xff".to_vec(),
            is_read_only: true,
        }],
        args: vec![b"ubtrfs".to_vec(), b"".to_vec(), b"a\xff".to_vec()],
    }
}

#[test]
fn a_request_arrives_with_its_descriptors() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    request()
        .send(&ours, &writer, std::io::stderr(), None)
        .unwrap();
    drop(writer);
    let (received, descriptors) = Request::receive(&theirs).unwrap();
    assert_eq!(received, request());
    assert!(descriptors.input.is_none());
    let mut stdout = descriptors.stdout;
    stdout.write_all(b"out").unwrap();
    drop(stdout);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "out");
}

#[test]
fn a_request_cut_anywhere_is_refused() {
    let bytes = request().to_bytes();
    let last_arg = bytes.len() - 6;
    for len in 0..last_arg {
        // A message cut between two arguments is a valid request with fewer arguments.
        if let Ok(shorter) = Request::from_bytes(&bytes[..len]) {
            assert!(shorter.args.len() < request().args.len());
        }
    }
    assert!(Request::from_bytes(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn another_version_is_named() {
    let mut bytes = request().to_bytes();
    bytes[4] = b'x';
    let error = Request::from_bytes(&bytes).unwrap_err();
    assert!(matches!(error, ProtocolError::Version(version) if version.starts_with('x')));
}

#[test]
fn a_peer_of_another_version_hears_which_this_is() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    refuse_version(&theirs).unwrap();
    drop(theirs);
    let error = exit_code(&ours, &mut None).unwrap_err();
    assert!(matches!(error, ProtocolError::Version(version) if version == VERSION));
    assert!(matches!(
        exit_code(&ours, &mut None),
        Err(ProtocolError::Malformed)
    ));
}

#[test]
fn a_request_without_descriptors_is_refused() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(&[0; 4]).unwrap();
    let error = Request::receive(&theirs).unwrap_err();
    assert!(matches!(error, ProtocolError::Malformed));
}

#[test]
fn a_greeting_is_answered_when_the_mount_knows_its_number() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let nonce = Nonce([9; 16]);
    let greeted = std::thread::spawn(move || greet(&ours, nonce));
    assert_eq!(greeting(&theirs).unwrap(), nonce);
    say_ready(&theirs).unwrap();
    assert!(greeted.join().unwrap().unwrap());
}

#[test]
fn a_client_that_does_not_greet_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    request()
        .send(&ours, std::io::stderr(), std::io::stderr(), None)
        .unwrap();
    let error = greeting(&theirs).unwrap_err();
    assert!(matches!(error, ProtocolError::Malformed));
}

#[test]
fn unfinished_messages_are_known_until_they_are_finished() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let long = [b'n'; MAX_SUBVOLUME_BYTES];
    for name in [&b"a"[..], b"", &long] {
        theirs.write_all(&receiving(name)).unwrap();
    }
    theirs.write_all(&[7]).unwrap();
    let mut unfinished = None;
    assert_eq!(exit_code(&ours, &mut unfinished).unwrap(), 7);
    assert_eq!(unfinished.as_deref(), Some(&long[..]));
    theirs.write_all(&receiving(b"")).unwrap();
    drop(theirs);
    assert!(exit_code(&ours, &mut unfinished).is_err());
    assert_eq!(unfinished, None);
}
