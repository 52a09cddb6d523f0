//! The kernel's switch for io_uring is turned off during mounting.

#[path = "../../../benches/transport/src/instant.rs"]
mod instant;
#[path = "../../../benches/transport/src/switch.rs"]
mod switch;

use std::fs;
use std::hint;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::io::Errno;
use ubtrfs_fuse::mount::{
    MountError, Options, Session, TransportChoice, mount_file_system, mount_table,
};
use ubtrfs_sim::{skip, skip_optional};

use self::instant::{Instant, Manners};
use self::switch::{SWITCH, with_uring};

/// Mounts, and turns the switch off when the kernel has made its offer and waits for the answer, which `offers` counts.
/// Returns `None`, and prints the reason, if this process cannot turn the switch.
fn mount_and_turn_off(
    dir: &Path,
    transport: TransportChoice,
    offers: &Arc<AtomicUsize>,
) -> Option<Result<Session, MountError>> {
    let mounted = with_uring(true, || mount_turning_off(dir, transport, offers, || {}));
    match mounted {
        Err(error) => {
            skip_optional(format_args!("no FUSE over io_uring: {error}"));
            None
        }
        Ok(Err(MountError::NoFuse | MountError::OpenFuse(_))) => {
            skip("cannot mount here");
            None
        }
        Ok(mounted) => Some(mounted),
    }
}

/// Mounts, and turns the switch off in between. `then` is called once the switch is off.
fn mount_turning_off(
    dir: &Path,
    transport: TransportChoice,
    offers: &Arc<AtomicUsize>,
    then: impl Fn() + Send + Sync + 'static,
) -> Result<Session, MountError> {
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
            then();
        }
    };
    *gate.when_asked.lock() = Some(Box::new(turn_off));
    let options = Options {
        transport,
        ..Options::default()
    };
    let source = Path::new("instant");
    mount_file_system(file_system, source, dir, &options)
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

/// The kernel checks its switch when it makes its offer, and when it is answered. If it was off then, it also checks it
/// on each command.
#[test]
fn a_mount_serves_on_whenever_the_switch_is_turned() {
    const ROUNDS: u32 = 20;
    // The switch is restored on every return.
    let outcome = with_uring(true, || (0..ROUNDS).try_for_each(survives_turns));
    match outcome {
        Err(error) => {
            skip_optional(format_args!("no FUSE over io_uring: {error}"));
        }
        Ok(survived) => survived.unwrap(),
    }
}

/// Turns the switch on again between the answer and the first command in some of the rounds. Turns it off after the
/// mount is complete.
fn survives_turns(round: u32) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(SWITCH, "Y").unwrap();
    let turn_on = move || {
        thread::spawn(move || {
            (0..round * 1000).for_each(|_| hint::spin_loop());
            fs::write(SWITCH, "Y").unwrap();
        });
    };
    let mounted = mount_turning_off(dir.path(), TransportChoice::Auto, &Arc::default(), turn_on);
    let mut session = match mounted {
        Err(MountError::NoFuse | MountError::OpenFuse(_)) => return Ok(()),
        mounted => mounted.map_err(|error| format!("round {round}: {error}"))?,
    };
    fs::write(SWITCH, "N").unwrap();
    let file = dir.path().join("file");
    let read = fs::write(&file, b"here").and_then(|()| fs::read(&file));
    let read = read.map_err(|error| format!("round {round}: {error}"))?;
    assert_eq!(read, b"here");
    session.unmount().map_err(|error| error.to_string())
}
