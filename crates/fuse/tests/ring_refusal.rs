//! The kernel's switch for io_uring is turned off while a mount is being made.

#[path = "../../../benches/transport/src/instant.rs"]
mod instant;
#[path = "../../../benches/transport/src/switch.rs"]
mod switch;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use ubtrfs_fuse::mount::{
    MountError, Options, Session, TransportChoice, mount_file_system, mount_table,
};

use self::instant::{Instant, Manners};
use self::switch::{SWITCH, with_uring};

/// Mounts, and turns the switch off when the kernel has made its offer and waits for the answer, which `offers` counts.
/// None, loudly, where the switch is not there or not for us.
fn mount_and_turn_off(
    dir: &Path,
    transport: TransportChoice,
    offers: &Arc<AtomicUsize>,
) -> Option<Result<Session, MountError>> {
    let file_system = Instant::new(Manners {
        writeback_cache: false,
        create: true,
    });
    let gate = file_system.gate.clone();
    let (mountpoint, offers) = (dir.to_owned(), Arc::clone(offers));
    let turn_off = move || {
        let table = mount_table().unwrap();
        if table.iter().any(|entry| entry.mountpoint == mountpoint) {
            offers.fetch_add(1, Ordering::Relaxed);
            fs::write(SWITCH, "N").unwrap();
        }
    };
    *gate.when_asked.lock() = Some(Box::new(turn_off));
    let options = Options {
        transport,
        ..Options::default()
    };
    let source = Path::new("instant");
    let mounted = with_uring(true, || {
        mount_file_system(file_system, source, dir, &options)
    });
    match mounted {
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: no FUSE over io_uring: {error}");
            None
        }
        Ok(Err(MountError::NoFuse | MountError::OpenFuse(_))) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: cannot mount here");
            None
        }
        Ok(mounted) => Some(mounted),
    }
}

fn mounts_at(dir: &Path) -> usize {
    let table = mount_table().unwrap();
    let here = table.iter().filter(|entry| entry.mountpoint == dir);
    here.count()
}

#[test]
fn a_mount_that_is_refused_io_uring_after_all_does_without() {
    let dir = tempfile::tempdir().unwrap();
    let offers = Arc::default();
    let Some(mounted) = mount_and_turn_off(dir.path(), TransportChoice::Auto, &offers) else {
        return;
    };
    let mut session = mounted.unwrap();
    assert_eq!(offers.load(Ordering::Relaxed), 2);
    assert_eq!(mounts_at(dir.path()), 1);
    let file = dir.path().join("file");
    fs::write(&file, b"here").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"here");
    session.unmount().unwrap();
    assert_eq!(mounts_at(dir.path()), 0);
}

#[test]
fn a_mount_that_is_to_be_over_io_uring_fails_if_that_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let offers = Arc::default();
    let Some(mounted) = mount_and_turn_off(dir.path(), TransportChoice::Uring, &offers) else {
        return;
    };
    let error = mounted.err();
    let Some(MountError::Handshake(refused)) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(Errno::from_io_error(refused), Some(Errno::OPNOTSUPP));
    assert_eq!(offers.load(Ordering::Relaxed), 1);
    assert_eq!(mounts_at(dir.path()), 0);
}
