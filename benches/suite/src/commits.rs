//! Commit statistics of a volume, as counted by the kernel or by the server of a mount.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::figures::{Round, Unit};

const MIB: f64 = (1 << 20) as f64;

/// All commits since the mount.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Commits {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
    /// The figures that only ubtrfs reports.
    pub(crate) own: Option<Own>,
}

/// Bytes by kind, and the total time of each commit phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Own {
    tree_bytes: f64,
    data_bytes: f64,
    phases: Vec<(String, f64)>,
}

impl Commits {
    /// Reads the counts of the volume with this fsid.
    pub(crate) fn of_kernel(fsid: &str) -> Result<Commits> {
        let text = fs::read_to_string(format!("/sys/fs/btrfs/{fsid}/commit_stats"))?;
        let value = |name: &str| -> Result<f64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(word, _)| *word == name);
            Ok(found.context("no count of commits")?.1.trim().parse()?)
        };
        Ok(Commits {
            count: value("commits")?,
            seconds: value("total_commit_ms")? / 1e3,
            own: None,
        })
    }

    /// Parses the output of `filesystem stats --format json`.
    pub(crate) fn of_ubtrfs(json: &str) -> Result<Commits> {
        let all: Value = serde_json::from_str(json)?;
        let writer = &all["filesystem-stats"]["writer"];
        let number = |name: &str| writer[name].as_f64().context("no count of commits");
        let phases = writer["phases"].as_object().context("no phases")?;
        let phases: Vec<_> = phases
            .iter()
            .filter_map(|(name, ns)| {
                Some((name.trim_end_matches("_ns").to_owned(), ns.as_f64()? / 1e9))
            })
            .collect();
        Ok(Commits {
            count: number("commits")?,
            seconds: phases.iter().map(|(_, seconds)| seconds).sum(),
            own: Some(Own {
                tree_bytes: number("node_bytes")?,
                data_bytes: number("data_bytes")?,
                phases,
            }),
        })
    }

    pub(crate) fn add_to(&self, what: &str, round: &mut Round) {
        round.add(format!("{what}: commits"), Unit::Count, self.count);
        round.add(format!("{what}: in commits"), Unit::Seconds, self.seconds);
        let Some(own) = &self.own else {
            return;
        };
        for (kind, bytes) in [("trees", own.tree_bytes), ("data", own.data_bytes)] {
            round.add(format!("{what}: {kind}, one copy"), Unit::Mib, bytes / MIB);
        }
        for (phase, seconds) in &own.phases {
            let what = format!("{what}: in commits: {phase}");
            round.add(what, Unit::Seconds, *seconds);
        }
    }
}

impl Sub for Commits {
    type Output = Commits;

    fn sub(self, before: Commits) -> Commits {
        let own = self.own.zip(before.own).map(|(now, before)| Own {
            tree_bytes: now.tree_bytes - before.tree_bytes,
            data_bytes: now.data_bytes - before.data_bytes,
            phases: now
                .phases
                .into_iter()
                .zip(before.phases)
                .map(|((name, seconds), (_, before))| (name, seconds - before))
                .collect(),
        });
        Commits {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
            own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Commits, Own};

    #[test]
    fn lines_of_the_server_are_understood() {
        let json = r#"{"filesystem-stats": {"writer": {"commits": 3, "data_bytes": 4096, "node_bytes": 16384,
            "phases": {"apply_ns": 2000000000, "freeze_ns": 500000000},
            "waits": {"buffer": {"count": 0, "ns": 0}, "delta": {"count": 0, "ns": 0}}}}}"#;
        let commits = Commits::of_ubtrfs(json).expect("it is what is printed");
        assert_eq!((commits.count, commits.seconds), (3.0, 2.5));
        let none = commits.clone() - commits;
        let own = none.own.expect("it was there");
        assert_eq!(
            own.phases,
            [("apply".to_owned(), 0.0), ("freeze".to_owned(), 0.0)]
        );
        assert_eq!((own.tree_bytes, own.data_bytes), (0.0, 0.0));
        assert_eq!(Commits::default().own, None::<Own>);
    }
}
