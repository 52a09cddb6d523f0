//! Reasons why an md array or a member of it is not used.

/// A defect of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockProblem {
    #[error("the checksum of its md superblock is {stored:#010x}, its bytes have {found:#010x}")]
    Checksum { stored: u32, found: u32 },
    #[error("its md superblock has {roles} roles, at most {max} are possible")]
    Roles { roles: usize, max: usize },
    #[error("its md superblock names {members} members, 1 to {max} are possible")]
    Members { members: usize, max: usize },
    #[error("its md superblock has impossible lengths")]
    Lengths,
}

/// Why a member is left out of its array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    #[error("stale: {events} events, the newest member has {newest}")]
    Stale { events: u64, newest: u64 },
    #[error("the array had dropped it as faulty")]
    Faulty,
    #[error("spare")]
    Spare,
    #[error("journal")]
    Journal,
    #[error("it contradicts the newest member about the array")]
    Different,
    #[error("another device is member {role} too")]
    Duplicate { role: usize },
    #[error("its data has {data_size} sectors, members need {size}")]
    TooSmall { data_size: u64, size: u64 },
    #[error("it was found after the array was assembled")]
    Late,
}

/// Why an array cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayProblem {
    #[error("it is being reshaped: let Linux finish that with 'mdadm --assemble'")]
    Reshape,
    #[error(
        "its journal (raid5-cache) may have newer data: 'mdadm --assemble --readonly --scan' on Linux reads it"
    )]
    Journal,
    #[error("its journal (raid5-cache) is missing, and may have newer data")]
    JournalMissing,
    #[error("it is degraded and was not stopped, and its partial parity log is not read here")]
    DirtyPpl,
    #[error("feature bits {0:#x} are unknown")]
    Features(u32),
    #[error(
        "md level {0} is not one of Linux: RAID F1 of Synology and others are read on their own machine only"
    )]
    Level(i32),
    #[error("layout {layout:#x} of level {level} is not known")]
    Layout { level: i32, layout: u32 },
    #[error("a chunk of {sectors} sectors is not possible")]
    Chunk { sectors: u32 },
    #[error("{present} of {members} members are there, at least {needed} are needed")]
    TooFew {
        present: usize,
        members: usize,
        needed: usize,
    },
    #[error("{present} of {members} members are there, and some chunks are on none of them")]
    Incomplete { present: usize, members: usize },
    #[error("its superblocks describe an array of an impossible size")]
    Size,
}

/// A fact about an array that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayNote {
    /// Parity may not match the data, which matters if members are missing.
    NotStopped,
    /// Data is valid up to here only.
    BeingRebuilt { role: usize, valid_bytes: u64 },
    /// The number of bad ranges that a member has.
    BadBlocks { role: usize, count: usize },
}

impl std::fmt::Display for ArrayNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArrayNote::NotStopped => f.write_str(
                "degraded and not stopped: rebuilt data may be wrong where it was last written",
            ),
            ArrayNote::BeingRebuilt { role, valid_bytes } => {
                write!(
                    f,
                    "member {role} is being rebuilt, and valid up to {valid_bytes} bytes"
                )
            }
            ArrayNote::BadBlocks { role, count } => {
                write!(f, "member {role} has a list of {count} bad ranges")
            }
        }
    }
}
