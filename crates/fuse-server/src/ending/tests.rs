//! Waiting for the end of a connection.

use std::sync::mpsc::channel;

use super::*;

#[test]
fn a_nap_ends_with_the_connection() {
    let ending = Ending::new().unwrap();
    assert!(!ending.nap(Duration::from_millis(1)));
    std::thread::scope(|scope| {
        let (sender, heard) = channel();
        let napping = &ending;
        scope.spawn(move || sender.send(napping.nap(Duration::from_secs(3600))).unwrap());
        ending.come();
        assert!(heard.recv().unwrap());
    });
    // Later callers see it, too.
    assert!(ending.nap(Duration::from_secs(3600)));
    assert!(!ending.has_failed());
    ending.take_failure().unwrap();
}

#[test]
fn the_first_reason_to_end_counts() {
    let ending = Ending::new().unwrap();
    ending.fail(io::ErrorKind::BrokenPipe.into());
    ending.fail(io::ErrorKind::NotFound.into());
    assert!(ending.has_failed() && ending.nap(Duration::ZERO));
    let reason = ending.take_failure().unwrap_err();
    assert_eq!(reason.kind(), io::ErrorKind::BrokenPipe);
}
