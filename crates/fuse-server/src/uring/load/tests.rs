//! Lines in the kernel's format.

use rustix::thread::gettid;

use super::*;

#[test]
fn fields_are_found_in_what_the_kernel_writes() {
    assert_eq!(runnable_in("11.14 7.46 3.72 3/187 4711\n"), Some(3));
    assert_eq!(runnable_in("11.14 7.46\n"), None);
    assert_eq!(is_runnable("17 (a) R b) S 1 17 17"), Some(false));
    assert_eq!(is_runnable("17 (ubtrfs-ring-0) R 1 17 17"), Some(true));
    assert_eq!(is_runnable("17"), None);
    let waited = Duration::from_nanos(81);
    assert_eq!(waited_in("4711 81 3\n"), Some(waited));
    assert_eq!(waited_in("0\n"), None);
}

#[test]
fn a_thread_that_looks_at_itself_runs() {
    let gauge = ThreadGauge::open(gettid()).unwrap();
    assert!(gauge.look().unwrap().is_runnable);
    assert!(Runnable::open().unwrap().count().unwrap() >= 1);
    assert!(online_cpus().unwrap() >= 1);
}
