//! The memory limit of this process: the machine's memory, or less according to its control groups.
//!
//! Both cgroup hierarchies count, wherever they are mounted, with the process's group and all visible ancestors
//! (cgroups(7)). In a container the path of the group may refer to the host; then the mounted root counts. Limits of
//! the address space (RLIMIT_AS) do not count, because most of it is never touched.
//!
//! Not here: budgets of individual caches and buffers.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Returns how many bytes this process may use before the kernel kills or throttles it.
pub fn memory_limit() -> u64 {
    memory_of_machine().min(memory_limit_of_groups().unwrap_or(u64::MAX))
}

/// Returns the total memory of the machine.
pub fn memory_of_machine() -> u64 {
    let system = rustix::system::sysinfo();
    u64::from(system.mem_unit).saturating_mul(system.totalram)
}

/// Returns the lowest limit of this process's control groups, if any.
pub fn memory_limit_of_groups() -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&hierarchies(&mounts), &groups)
}

/// A mounted cgroup hierarchy that may limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group at the mount point, and the mount point.
    root: String,
    at: PathBuf,
    unified: bool,
}

impl Hierarchy {
    /// Returns the names of the files with a group's limits.
    fn files(&self) -> &'static [&'static str] {
        if self.unified {
            &["memory.max", "memory.high"]
        } else {
            &["memory.limit_in_bytes"]
        }
    }

    /// Returns the lowest limit of a group and its ancestors.
    fn limit_of(&self, group: &str) -> Option<u64> {
        let below = Path::new(group)
            .strip_prefix(&self.root)
            .unwrap_or(Path::new(""));
        let dirs = below.ancestors().map(|group| self.at.join(group));
        let files = dirs.flat_map(|dir| self.files().iter().map(move |file| dir.join(file)));
        files.filter_map(|file| read_limit(&file)).min()
    }
}

/// Returns the lowest limit of a process's groups; `groups` is its /proc/PID/cgroup.
fn limit_of(hierarchies: &[Hierarchy], groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default();
        let unified = controllers.is_empty();
        let counts = unified || controllers.split(',').any(|one| one == "memory");
        let of_kind = hierarchies
            .iter()
            .filter(move |hierarchy| counts && hierarchy.unified == unified);
        of_kind.filter_map(move |hierarchy| hierarchy.limit_of(path))
    });
    limits.min()
}

/// Parses the cgroup mounts in a /proc/PID/mountinfo (proc_pid_mountinfo(5)).
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let parse = |line: &str| {
        let (mount, of) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        let mut of = of.split(' ');
        let unified = match of.next()? {
            "cgroup2" => true,
            "cgroup" if of.nth(1)?.split(',').any(|word| word == "memory") => false,
            _ => return None,
        };
        Some(Hierarchy {
            root: root.to_owned(),
            at: at.into(),
            unified,
        })
    };
    mounts.lines().filter_map(parse).collect()
}

/// Reads a limit from a file. Returns None without a limit.
fn read_limit(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
