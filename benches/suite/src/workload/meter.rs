//! Costs of a part of a workload in addition to its time.

use std::time::Instant;

use anyhow::Result;

use crate::commits::Commits;
use crate::counters::{DeviceCounts, cpu_seconds};
use crate::figures::{Round, Unit};
use crate::stage::Stage;

const MIB: f64 = (1 << 20) as f64;

/// A meter that starts when it is created.
#[derive(Debug)]
pub(crate) struct Meter {
    begin: Instant,
    cpu: f64,
    device: DeviceCounts,
    commits: Commits,
}

impl Meter {
    pub(crate) fn start(stage: &Stage) -> Result<Meter> {
        Ok(Meter {
            device: stage.device_counts()?,
            commits: stage.commits()?,
            cpu: cpu_seconds()?,
            begin: Instant::now(),
        })
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    pub(crate) fn written(&self, stage: &Stage) -> Result<DeviceCounts> {
        Ok(stage.device_counts()? - self.device)
    }

    /// Adds the number, time and written bytes of commits.
    pub(crate) fn add_commits(&self, what: &str, stage: &Stage, round: &mut Round) -> Result<()> {
        (stage.commits()? - self.commits.clone()).add_to(what, round);
        Ok(())
    }

    /// Adds CPU time, bytes written and memory since the start.
    pub(crate) fn add_costs(&self, what: &str, stage: &Stage, round: &mut Round) -> Result<()> {
        round.add(
            format!("{what}: CPU"),
            Unit::Seconds,
            cpu_seconds()? - self.cpu,
        );
        let written = self.written(stage)?.written_bytes as f64;
        round.add(format!("{what}: written"), Unit::Mib, written / MIB);
        if let Some(bytes) = stage.peak_memory_bytes() {
            round.add("server: memory", Unit::Mib, bytes as f64 / MIB);
        }
        Ok(())
    }
}
