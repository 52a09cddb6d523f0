//! Options of a scrub.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubtrfs_device::ScrubCounts;

use super::control::ScrubControl;

/// Default limit of the list of damage.
const MAX_DAMAGE: usize = 1000;

/// Options of a scrub. The default scrubs all devices at full speed, and repairs.
#[derive(Clone, Debug)]
pub struct ScrubOptions {
    /// Whether nothing is written.
    pub read_only: bool,
    /// The only devices to scrub; None for all.
    pub devices: Option<Vec<u64>>,
    /// The counts of an earlier part. A device continues at its `last_physical`.
    pub resumed: BTreeMap<u64, ScrubCounts>,
    /// The limit for each device in bytes per second; 0 for none.
    pub bytes_per_second: u64,
    /// The number of damaged ranges to list; the others are counted.
    pub max_damage: usize,
    /// The means to cancel the scrub and to see its counts from another thread.
    pub control: Arc<ScrubControl>,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions {
            read_only: false,
            devices: None,
            resumed: BTreeMap::new(),
            bytes_per_second: 0,
            max_damage: MAX_DAMAGE,
            control: Arc::default(),
        }
    }
}
