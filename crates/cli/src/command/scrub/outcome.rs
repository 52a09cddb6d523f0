//! The result of a scrub, by this process or by a mount.

use std::io;

use ubtrfs::{DeviceScrub, ScrubReport};

/// The result of a scrub.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) devices: Vec<DeviceScrub>,
    pub(super) is_cancelled: bool,
    /// The report with the damage and its files; mounts return no report.
    pub(super) report: Option<ScrubReport>,
    /// Devices whose scrub failed, with the reason.
    pub(super) failed: Vec<(u64, io::Error)>,
}
