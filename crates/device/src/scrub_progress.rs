//! Counts of a scrub for each device, as its observers receive them.
//!
//! The kernel's btrfs has the first fifteen counts, in this order and in these units.

/// The counts of a scrub of one device. Errors count sectors: a damaged tree block of 16 KiB is four errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubCounts {
    /// The number of data extents, counted again in each stripe of 64 KiB.
    pub data_extents: u64,
    /// The number of tree blocks.
    pub tree_extents: u64,
    /// The number of bytes of data.
    pub data_bytes: u64,
    /// The number of bytes of tree blocks.
    pub tree_bytes: u64,
    /// The number of sectors that the device could not read.
    pub read_errors: u64,
    /// The number of data sectors with a wrong checksum.
    pub csum_errors: u64,
    /// The number of sectors of damaged tree blocks.
    pub verify_errors: u64,
    /// The number of data sectors without a checksum.
    pub no_csum: u64,
    /// Always 0.
    pub csum_discards: u64,
    /// The number of damaged copies of the superblock.
    pub super_errors: u64,
    /// Always 0.
    pub malloc_errors: u64,
    /// The number of damaged sectors that no other copy could replace.
    pub uncorrectable_errors: u64,
    /// The number of damaged sectors that were repaired, or that a scrub which writes would repair.
    pub corrected_errors: u64,
    /// The offset on the device up to which everything is verified.
    pub last_physical: u64,
    /// The number of sectors that could not be verified, because a tree that describes them is unreadable.
    pub unverified_errors: u64,
    /// The number of sectors of P of RAID5 and RAID6 that do not match their data.
    pub p_errors: u64,
    /// The number of sectors of Q of RAID6 that do not match their data.
    pub q_errors: u64,
    /// The number of sectors of P and Q that were repaired, or that a scrub which writes would repair.
    pub parity_corrected: u64,
}

impl ScrubCounts {
    /// Creates counts from the kernel's, in its order.
    pub fn of_kernel(counts: [u64; 15]) -> ScrubCounts {
        let [
            data_extents,
            tree_extents,
            data_bytes,
            tree_bytes,
            read_errors,
            csum_errors,
            verify_errors,
            no_csum,
            csum_discards,
            super_errors,
            malloc_errors,
            uncorrectable_errors,
            corrected_errors,
            last_physical,
            unverified_errors,
        ] = counts;
        ScrubCounts {
            data_extents,
            tree_extents,
            data_bytes,
            tree_bytes,
            read_errors,
            csum_errors,
            verify_errors,
            no_csum,
            csum_discards,
            super_errors,
            malloc_errors,
            uncorrectable_errors,
            corrected_errors,
            last_physical,
            unverified_errors,
            ..ScrubCounts::default()
        }
    }

    /// Returns the kernel's counts, in its order.
    pub fn to_kernel(&self) -> [u64; 15] {
        [
            self.data_extents,
            self.tree_extents,
            self.data_bytes,
            self.tree_bytes,
            self.read_errors,
            self.csum_errors,
            self.verify_errors,
            self.no_csum,
            self.csum_discards,
            self.super_errors,
            self.malloc_errors,
            self.uncorrectable_errors,
            self.corrected_errors,
            self.last_physical,
            self.unverified_errors,
        ]
    }

    /// Returns the number of errors, as btrfs-progs counts them.
    pub fn errors(&self) -> u64 {
        self.read_errors
            + self.super_errors
            + self.verify_errors
            + self.csum_errors
            + self.p_errors
            + self.q_errors
    }

    /// Returns the sums of two devices. The offset is the greater one.
    pub fn plus(&self, other: &ScrubCounts) -> ScrubCounts {
        ScrubCounts {
            data_extents: self.data_extents + other.data_extents,
            tree_extents: self.tree_extents + other.tree_extents,
            data_bytes: self.data_bytes + other.data_bytes,
            tree_bytes: self.tree_bytes + other.tree_bytes,
            read_errors: self.read_errors + other.read_errors,
            csum_errors: self.csum_errors + other.csum_errors,
            verify_errors: self.verify_errors + other.verify_errors,
            no_csum: self.no_csum + other.no_csum,
            csum_discards: self.csum_discards + other.csum_discards,
            super_errors: self.super_errors + other.super_errors,
            malloc_errors: self.malloc_errors + other.malloc_errors,
            uncorrectable_errors: self.uncorrectable_errors + other.uncorrectable_errors,
            corrected_errors: self.corrected_errors + other.corrected_errors,
            last_physical: self.last_physical.max(other.last_physical),
            unverified_errors: self.unverified_errors + other.unverified_errors,
            p_errors: self.p_errors + other.p_errors,
            q_errors: self.q_errors + other.q_errors,
            parity_corrected: self.parity_corrected + other.parity_corrected,
        }
    }
}

/// The scrub of one device so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceScrub {
    /// The id of the device within the volume.
    pub device_id: u64,
    /// The counts so far.
    pub counts: ScrubCounts,
    /// An estimate of the bytes of data and tree blocks on the device.
    pub total_bytes: u64,
    /// Whether the whole device was scrubbed.
    pub is_finished: bool,
    /// Whether the device is missing, so that nothing of it was scrubbed.
    pub is_missing: bool,
}

impl DeviceScrub {
    /// Creates the state before the scrub of a device, which begins with `counts` of an earlier part.
    pub fn new(device_id: u64, counts: ScrubCounts) -> DeviceScrub {
        DeviceScrub {
            device_id,
            counts,
            total_bytes: 0,
            is_finished: false,
            is_missing: false,
        }
    }
}
