//! The kernel's lists of CPUs, and invalid ones.

use rustix::io::Errno;

use super::*;

#[test]
fn lists_of_cpus_are_counted() {
    for (list, count) in [
        ("0\n", Some(1)),
        ("0-1\n", Some(2)),
        ("0-3,8", Some(5)),
        ("0-3,8-9,12", Some(7)),
        ("", None),
        ("3-1", None),
        ("0-65535", None),
        ("x", None),
    ] {
        assert_eq!(count_of(list), count, "{list}");
    }
    assert!(possible_cpus().unwrap() >= 1);
}

/// Creates a device that accepts no commands.
fn no_fuse() -> Device {
    Device::new(tempfile::tempfile().unwrap().into())
}

#[test]
fn a_refusal_is_known_before_io_uring_is_agreed_on() {
    let tried = Ring::new(0, 1).map(|mut ring| ring.try_command(no_fuse().as_fd()));
    match tried {
        Ok(tried) => {
            let error = tried.unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP));
        }
        Err(error) => ubtrfs_sim::skip_optional(format_args!("no io_uring: {error}")),
    }
}

#[test]
fn slots_that_are_refused_make_registering_fail() {
    let ending = Ending::new().unwrap();
    match Queue::new(0, &Capacity::of(0)) {
        Ok(mut queue) => {
            let error = queue.register(&no_fuse(), &ending).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP));
        }
        Err(error) => ubtrfs_sim::skip_optional(format_args!("no io_uring: {error}")),
    }
}

/// QUEUE-2 and SLOT-2
#[test]
fn slots_that_the_kernel_may_have_are_leaked() {
    let new = || Queue::new(0, &Capacity::of(0));
    let (Ok(offered), Ok(unknown)) = (new(), new()) else {
        ubtrfs_sim::skip_optional("no io_uring");
        return;
    };
    let before = slot::dropped();
    drop(offered);
    assert_eq!(slot::dropped(), before);
    unknown.abandon();
    assert!(slot::dropped() > before);
}
