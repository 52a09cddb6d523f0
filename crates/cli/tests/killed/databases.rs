//! Databases on a mount whose server is killed: they recover, and contain each commit that was acknowledged.
//!
//! In each round databases run until the kill, and recover on our mount. Both checkers examine the image
//! after the kill and after the recovery. In every third round a copy also recovers on the kernel's mount.
//!
//! UBTRFS_SOAK: 50 rounds; otherwise only a few.

use std::path::Path;
use std::process::Child;

use ubtrfs_sim::Rng;

use crate::fixture::{Bench, is_soak, say, seed};

/// Mount options, used in turn.
const OPTIONS: [&str; 6] = [
    "commit=30",
    "commit=1,transport=classic",
    "commit=3,compress=zstd",
    "commit=3,transport=classic",
    "commit=30,nodatacow",
    "commit=1",
];

pub(crate) trait Database {
    /// Creates the databases in an empty directory.
    fn create(&mut self, dir: &Path);

    /// Runs transactions, and kills the server of the mount at a random time. Returns how many commits were
    /// acknowledged since the last call.
    fn work_and_kill(&mut self, dir: &Path, round: u64, server: Child, rng: &mut Rng) -> u64;

    /// Lets the databases recover, and asserts that they are consistent and contain every acknowledged
    /// commit.
    fn verify(&mut self, dir: &Path, by: &str);

    /// Takes the last contents found as the expected minimum from now on.
    fn accept(&mut self);
}

pub(crate) fn assert_survives(name: &str, database: &mut dyn Database) {
    let mut rng = Rng::new(seed());
    let rounds = if is_soak() { 50 } else { 3 };
    let bench = Bench::new();
    let dir = bench.mountpoint();
    let server = bench.serve_with(OPTIONS[0]);
    database.create(&dir);
    bench.end(server);
    let (mut acknowledged, mut logs, mut by_kernel) = (0, 0, 0);
    for round in 0..rounds {
        let options = OPTIONS[round as usize % OPTIONS.len()];
        let server = bench.serve_with(options);
        let commits = database.work_and_kill(&dir, round, server, &mut rng);
        bench.umount();
        let has_log = bench.has_log();
        acknowledged += commits;
        logs += u64::from(has_log);
        say(&format!(
            "{name}: round {round}, {options}: {commits} commits acknowledged, log pending: {has_log}"
        ));
        bench.check();
        if round % 3 == 2 {
            by_kernel += u64::from(bench.on_kernel(|dir| database.verify(dir, "kernel")));
        }
        let server = bench.serve_with(options);
        database.verify(&dir, "ubtrfs");
        database.accept();
        bench.end(server);
        bench.check();
    }
    assert!(acknowledged > 0, "nothing was acknowledged");
    say(&format!(
        "{name}: {rounds} kills, {acknowledged} commits acknowledged, {logs} logs pending, {by_kernel} copies recovered on the kernel's mount"
    ));
}
