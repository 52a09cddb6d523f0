//! Figures of a workload: values of several rounds on each side, and their summaries.

use std::collections::BTreeMap;

use serde::Serialize;

/// The file system that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// The kernel's btrfs on a loop device.
    Kernel,
    /// `ubtrfs mount`.
    Mount,
    /// The library, in the load's own process.
    Library,
}

impl Side {
    pub(crate) const ALL: [Side; 3] = [Side::Kernel, Side::Mount, Side::Library];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Kernel => "kernel",
            Side::Mount => "ubtrfs mount",
            Side::Library => "ubtrfs library",
        }
    }
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Seconds,
    Microseconds,
    PerSecond,
    MibPerSecond,
    Mib,
    Bytes,
    Count,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Microseconds => "us",
            Unit::PerSecond => "/s",
            Unit::MibPerSecond => "MiB/s",
            Unit::Mib => "MiB",
            Unit::Bytes => "B",
            Unit::Count => "",
        }
    }

    /// Returns whether larger values are better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::MibPerSecond)
    }
}

/// One value of one round.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
}

/// Collects the figures of one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    figures: Vec<Figure>,
    /// The rows that were not measured, and why.
    skipped: Vec<(&'static str, String)>,
}

impl Round {
    pub(crate) fn add(&mut self, what: impl Into<String>, unit: Unit, value: f64) {
        self.figures.push(Figure {
            what: what.into(),
            unit,
            value,
        });
    }

    /// Skips a part of the workload, which has no figures in this round. The reason is printed at once.
    pub(crate) fn skip(&mut self, what: &'static str, why: impl Into<String>) {
        let why = why.into();
        eprintln!("\nSKIPPED: {what}: {why}");
        self.skipped.push((what, why));
    }
}

/// All values of one figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) values: BTreeMap<Side, Vec<f64>>,
}

/// A summary of several values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Row {
    pub(crate) fn summary(&self, side: Side) -> Option<Summary> {
        let mut values = self.values.get(&side)?.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0,
            _ => *values.get(middle)?,
        };
        Some(Summary {
            median,
            least: *values.first()?,
            most: *values.last()?,
        })
    }

    /// Divides the side's median by the kernel's.
    pub(crate) fn ratio(&self, side: Side) -> Option<f64> {
        let kernel = self.summary(Side::Kernel)?.median;
        let ratio = self.summary(side)?.median / kernel;
        (side != Side::Kernel && ratio.is_finite()).then_some(ratio)
    }
}

/// The results of a workload.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// A description of the work, for readers of the page.
    pub(crate) text: &'static str,
    pub(crate) rows: Vec<Row>,
    /// Why a side has no figures.
    pub(crate) absent: BTreeMap<Side, String>,
    /// Why a part of the workload has no figures.
    pub(crate) skipped: BTreeMap<&'static str, String>,
}

impl Table {
    pub(crate) fn add(&mut self, side: Side, round: Round) {
        self.skipped.extend(round.skipped);
        for figure in round.figures {
            let known = self.rows.iter().position(|row| row.what == figure.what);
            let at = known.unwrap_or_else(|| {
                self.rows.push(Row {
                    what: figure.what,
                    unit: figure.unit,
                    values: BTreeMap::new(),
                });
                self.rows.len() - 1
            });
            self.rows[at]
                .values
                .entry(side)
                .or_default()
                .push(figure.value);
        }
    }
}

#[cfg(test)]
mod tests;
