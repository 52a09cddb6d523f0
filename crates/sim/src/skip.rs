//! Tests that cannot run completely on this machine. They print a message, and `cargo xtask units` counts them.
//!
//! If root has btrfs in the kernel, `make test` sets `UBTRFS_REQUIRE_KERNEL`. Then missing root permissions,
//! `/dev/fuse`, or packages of `scripts/setup` are failures. Machine-dependent features (FUSE over io_uring, a
//! version of btrfs-progs) are never required.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use crate::rights::is_root;

/// Reports the missing requirement of the calling test. Panics if `UBTRFS_REQUIRE_KERNEL` is set.
#[track_caller]
pub fn skip(lack: impl Display) {
    skip_part(&calling_test(), lack);
}

/// Reports the missing requirement of a test or a part of one. Panics if `UBTRFS_REQUIRE_KERNEL` is set.
#[track_caller]
pub(crate) fn skip_part(part: &str, lack: impl Display) {
    assert!(
        std::env::var_os("UBTRFS_REQUIRE_KERNEL").is_none(),
        "{part} would be skipped: {lack}"
    );
    report(part, &lack);
}

/// Reports a missing requirement that is optional even with `UBTRFS_REQUIRE_KERNEL`.
pub fn skip_optional(lack: impl Display) {
    report(&calling_test(), &lack);
}

/// Returns the name of the calling test, which is the name of its thread.
pub(crate) fn calling_test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a thread").to_owned()
}

fn report(part: &str, lack: &dyn Display) {
    // The test harness would capture `eprintln!` and print it only for failing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED {part}: {lack}");
}

/// Returns whether the test runs as root, and skips it otherwise.
#[track_caller]
pub fn is_root_or_skip() -> bool {
    let is_root = is_root();
    if !is_root {
        skip("not root");
    }
    is_root
}

/// Returns whether the PID namespace is the kernel's first one, which shows all processes.
pub fn is_in_first_pid_namespace() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST))
}

/// Returns whether `/dev/fuse` exists, and skips the test otherwise.
#[track_caller]
pub fn has_fuse_or_skip() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    if !has_fuse {
        skip("no /dev/fuse");
    }
    has_fuse
}
