//! What can go wrong with devices and with reading through the chunk map.
//!
//! Every variant names the place: the device's path or devid, and offsets in bytes.

use std::io;
use std::path::PathBuf;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical, Physical};
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;

use crate::chunk_map::ChunkProblem;
use crate::waiting::{self, WouldWait};

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(transparent)]
    WouldWait(#[from] WouldWait),
    #[error("no device given")]
    NoDevice,
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is {kind}, not an image file or a block device", path.display())]
    Kind { path: PathBuf, kind: &'static str },
    #[error("{} is in use by another process ({holder})", path.display())]
    InUse { path: PathBuf, holder: Holder },
    #[error("cannot read {len} bytes at {offset} of {}: {source}", path.display())]
    ReadRaw {
        path: PathBuf,
        offset: u64,
        len: u64,
        source: io::Error,
    },
    #[error("cannot write {len} bytes at {offset} of {}: {source}", path.display())]
    WriteRaw {
        path: PathBuf,
        offset: u64,
        len: u64,
        source: io::Error,
    },
    #[error("cannot flush {}: {source}", path.display())]
    Flush { path: PathBuf, source: io::Error },
    #[error("no device that is there can take the copies of logical {logical}")]
    NoCopy { logical: Logical },
    #[error("chunk {logical} has parity: RAID5 and RAID6 are only read")]
    ParityWrite { logical: Logical },
    #[error("{} is not a btrfs device", path.display())]
    NotBtrfs { path: PathBuf },
    #[error("{} was not completed by mkfs", path.display())]
    Incomplete { path: PathBuf },
    #[error("{}: superblock at {offset}: {source}", path.display())]
    Superblock {
        path: PathBuf,
        offset: u64,
        source: SuperblockError,
    },
    #[error("{}: {source}", path.display())]
    Unsupported {
        path: PathBuf,
        source: SuperblockError,
    },
    #[error("{} belongs to volume {found}, not {wanted}", path.display())]
    OtherVolume {
        path: PathBuf,
        wanted: Uuid,
        found: Uuid,
    },
    #[error("{} and {} both claim to be device {devid} at generation {generation}", first.display(), second.display())]
    DuplicateDevice {
        devid: DevId,
        generation: u64,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("device {devid} (uuid {uuid}) is missing")]
    Missing { devid: DevId, uuid: Uuid },
    #[error("{}: device {devid} has {len_bytes} bytes, the volume expects {total_bytes}: truncated", path.display())]
    Truncated {
        path: PathBuf,
        devid: DevId,
        len_bytes: u64,
        total_bytes: u64,
    },
    #[error("chunk {logical}: {problem}")]
    Chunk {
        logical: Logical,
        problem: ChunkProblem,
    },
    #[error("chunk {logical} ({}) has lost {missing} of its devices, too many to be written", profile.name())]
    Unwritable {
        logical: Logical,
        profile: Profile,
        missing: usize,
    },
    #[error("no chunk holds logical {logical}")]
    NoChunk { logical: Logical },
    #[error("logical {logical} has {mirrors} mirrors, there is no mirror {mirror}")]
    NoMirror {
        logical: Logical,
        mirror: usize,
        mirrors: usize,
    },
    #[error(
        "cannot read {len} bytes at {physical} of device {devid} (logical {logical}): {source}"
    )]
    Read {
        devid: DevId,
        physical: Physical,
        logical: Logical,
        len: u64,
        source: io::Error,
    },
    #[error("cannot rebuild logical {logical}: {lost} stripes lost, {parities} can be")]
    Rebuild {
        logical: Logical,
        lost: usize,
        parities: usize,
    },
}

impl DeviceError {
    /// Whether nothing is wrong but that the thread must not wait.
    pub fn is_would_wait(&self) -> bool {
        match self {
            DeviceError::WouldWait(_) => true,
            DeviceError::ReadRaw { source, .. } | DeviceError::Read { source, .. } => {
                waiting::is_would_wait(source)
            }
            _ => false,
        }
    }
}

/// Who uses a device that we may not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Another process, if it is known which, holds the lock that ubtrfs takes.
    Lock { pid: Option<u32> },
    /// A loop device of this name is backed by the file.
    Loop(String),
    /// It is claimed exclusively: mounted, part of another device, or opened so by a program.
    Kernel,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Lock { pid: None } => f.write_str("it holds the lock"),
            Holder::Lock { pid: Some(pid) } => write!(f, "process {pid} holds the lock"),
            Holder::Loop(name) => write!(f, "attached to {name}"),
            Holder::Kernel => f.write_str("mounted, or claimed by another program"),
        }
    }
}

/// A range that no mirror could give, with what each mirror did.
#[derive(Debug, thiserror::Error)]
#[error(
    "no good mirror of {len} bytes at logical {logical}{}",
    attempts_text(attempts)
)]
pub struct ReadFailure {
    pub logical: Logical,
    pub len: u64,
    /// The granule's number within the read.
    pub index: usize,
    pub attempts: Vec<Attempt>,
}

impl ReadFailure {
    /// What is not there at once, for a thread that must not wait.
    pub(crate) fn would_wait(logical: Logical, len: u64) -> ReadFailure {
        let attempt = Attempt {
            mirror: 0,
            place: None,
            problem: AttemptProblem::Device(WouldWait.into()),
        };
        ReadFailure {
            logical,
            len,
            index: 0,
            attempts: vec![attempt],
        }
    }

    /// Whether nothing is wrong but that the thread must not wait.
    pub fn is_would_wait(&self) -> bool {
        self.attempts.iter().any(|attempt| {
            matches!(&attempt.problem, AttemptProblem::Device(error) if error.is_would_wait())
        })
    }
}

/// One try to read a granule.
#[derive(Debug)]
pub struct Attempt {
    pub mirror: usize,
    /// Where the bytes lie; None if there is no one place (no chunk).
    pub place: Option<(DevId, Physical)>,
    pub problem: AttemptProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum AttemptProblem {
    #[error("content does not check")]
    Content,
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn attempts_text(attempts: &[Attempt]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for attempt in attempts {
        // Writing to a String cannot fail.
        let _ = write!(text, "; mirror {}", attempt.mirror);
        if let Some((devid, physical)) = attempt.place {
            let _ = write!(text, " (device {devid} at {physical})");
        }
        let _ = write!(text, ": {}", attempt.problem);
    }
    text
}
