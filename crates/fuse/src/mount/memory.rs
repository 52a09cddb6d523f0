//! How much memory the changes of a transaction may take, by what the machine and the control group have.
//!
//! A transaction that is longer rewrites each tree block less often. The kernel keeps its dirty tree blocks in the
//! page cache and so lets them grow with the machine; a mount does likewise. Programs that embed the engine say
//! how much they can spare.

use std::path::{Component, Path};

/// The share of the memory that is there. At worst a delta of this size is committed while the next one grows.
const SHARE: u64 = 24;
const LEAST_BYTES: u64 = 128 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// Budget of the changes of one transaction, in bytes.
pub(super) fn delta_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = u64::from(system.mem_unit).saturating_mul(system.totalram);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(Path::new("/sys/fs/cgroup"), &groups);
    share(machine.min(group.unwrap_or(u64::MAX)))
}

fn share(memory_bytes: u64) -> u64 {
    (memory_bytes / SHARE).clamp(LEAST_BYTES, MOST_BYTES)
}

/// The least limit of a process's control groups and of those above them, in bytes. `groups` is its
/// /proc/PID/cgroup (cgroups(7)), `top` where control groups are mounted.
fn group_limit(top: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (top, file) = match controllers {
            "" => (top.to_owned(), "memory.max"),
            some if some.split(',').any(|one| one == "memory") => {
                (top.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        least_above(&top, Path::new(path), file)
    });
    limits.min()
}

/// The least number in the files of this name in `path` and the folders above it, up to `top`.
fn least_above(top: &Path, path: &Path, file: &str) -> Option<u64> {
    let mut dir = top.to_owned();
    // In a container the path may be one of the host, which is not there: then the top counts.
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut least = read_limit(&dir.join(file));
    for name in names {
        dir.push(name);
        let limit = read_limit(&dir.join(file));
        least = least.into_iter().chain(limit).min();
    }
    least
}

/// None if there is no limit.
fn read_limit(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{LEAST_BYTES, MOST_BYTES, group_limit, share};

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_group_counts() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        write(&top.join("a/memory.max"), "1000000\n");
        write(&top.join("a/b/memory.max"), "max\n");
        write(&top.join("memory/old/memory.limit_in_bytes"), "500000\n");
        assert_eq!(group_limit(top, "0::/a/b\n"), Some(1_000_000));
        assert_eq!(group_limit(top, "0::/\n"), None);
        assert_eq!(
            group_limit(top, "3:cpu,memory:/old\n0::/a\n"),
            Some(500_000)
        );
        assert_eq!(group_limit(top, "0::/of/the/host\n"), None);
        assert_eq!(group_limit(top, "nothing known"), None);
    }

    #[test]
    fn small_machines_keep_the_least_and_large_ones_have_a_bound() {
        assert_eq!(share(512 << 20), LEAST_BYTES);
        assert_eq!(share(12 << 30), 512 << 20);
        assert_eq!(share(1 << 40), MOST_BYTES);
    }
}
