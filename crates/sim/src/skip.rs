//! Tests that cannot run on this machine, wholly or in part. They say so, and `cargo xtask units` counts them.
//!
//! Where root has the kernel's btrfs, `make test` sets `UBTRFS_REQUIRE_KERNEL`. A lack of root, of `/dev/fuse`, or of a
//! package that `scripts/setup` installs is a failure then. Features that machines have or lack (FUSE over io_uring,
//! a version of btrfs-progs) are never required.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use crate::rights::is_root;

/// Reports what the calling test lacks. Panics if `UBTRFS_REQUIRE_KERNEL` is set.
#[track_caller]
pub fn skip(lack: impl Display) {
    skip_part(&calling_test(), lack);
}

/// Reports what a test or a part of one lacks. Panics if `UBTRFS_REQUIRE_KERNEL` is set.
#[track_caller]
pub(crate) fn skip_part(part: &str, lack: impl Display) {
    assert!(
        std::env::var_os("UBTRFS_REQUIRE_KERNEL").is_none(),
        "{part} would be skipped: {lack}"
    );
    report(part, &lack);
}

/// Reports what the calling test lacks, where `UBTRFS_REQUIRE_KERNEL` does not require it.
pub fn skip_optional(lack: impl Display) {
    report(&calling_test(), &lack);
}

/// Returns the name of the calling test: the harness gives it to the thread.
pub(crate) fn calling_test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a thread").to_owned()
}

fn report(part: &str, lack: &dyn Display) {
    // The test harness would capture `eprintln!` and show it only for tests that fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {part}: {lack}");
}

/// Returns whether the test runs as root. Skips it if not.
#[track_caller]
pub fn is_root_or_skip() -> bool {
    let is_root = is_root();
    if !is_root {
        skip("not root");
    }
    is_root
}

/// Returns whether there is a `/dev/fuse`. Skips the test if not.
#[track_caller]
pub fn has_fuse_or_skip() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    if !has_fuse {
        skip("no /dev/fuse");
    }
    has_fuse
}
