//! Copies of a test's mount in the mount namespaces of other tests.

use std::time::{Duration, Instant};

/// Waits until no process sees a mount at `dir`.
pub(crate) fn wait_until_gone(dir: &str) {
    const LONGEST: Duration = Duration::from_secs(120);
    let place = format!(" {dir} ");
    let is_seen = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut tables = processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("mounts")).ok());
        tables.any(|table| table.contains(&place))
    };
    let begun = Instant::now();
    while is_seen() {
        assert!(
            begun.elapsed() < LONGEST,
            "{dir} is still mounted in another namespace"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
