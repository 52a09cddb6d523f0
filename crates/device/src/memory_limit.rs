//! How much memory this process may take: what the machine has, or less if its control groups say so.
//!
//! Both hierarchies count, wherever they are mounted, and in each the group of the process and all above it that can
//! be seen (cgroups(7)). In a container the path of the group may be one of the host: then the mounted top counts.
//! Limits of the address space (RLIMIT_AS) do not count: most of it is never touched.
//!
//! Not here: what the memory is used for.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Returns how many bytes this process may take before the kernel kills it or slows it down.
pub fn memory_limit() -> u64 {
    memory_of_machine().min(memory_limit_of_groups().unwrap_or(u64::MAX))
}

/// Returns the bytes of the machine's memory.
pub fn memory_of_machine() -> u64 {
    let system = rustix::system::sysinfo();
    u64::from(system.mem_unit).saturating_mul(system.totalram)
}

/// Returns the least limit of this process's control groups, if there is one.
pub fn memory_limit_of_groups() -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&hierarchies(&mounts), &groups)
}

/// A mounted hierarchy that may limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group that is mounted, and where.
    root: String,
    at: PathBuf,
    unified: bool,
}

impl Hierarchy {
    /// Returns the names of a group's files that have a limit in them.
    fn files(&self) -> &'static [&'static str] {
        match self.unified {
            true => &["memory.max", "memory.high"],
            false => &["memory.limit_in_bytes"],
        }
    }

    /// Returns the least limit of a group and of those above it.
    fn limit_of(&self, group: &str) -> Option<u64> {
        let below = Path::new(group)
            .strip_prefix(&self.root)
            .unwrap_or(Path::new(""));
        let dirs = below.ancestors().map(|group| self.at.join(group));
        let files = dirs.flat_map(|dir| self.files().iter().map(move |file| dir.join(file)));
        files.filter_map(|file| read_limit(&file)).min()
    }
}

/// Returns the least limit that the groups of a process have; `groups` is its /proc/PID/cgroup.
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

/// Parses the hierarchies in a /proc/PID/mountinfo (proc_pid_mountinfo(5)).
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

/// Reads a limit from a file; None if there is no limit.
fn read_limit(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
