//! Errors of devices and of reading through the chunk map.
//!
//! Every variant identifies the place: the device's path or devid, and offsets in bytes.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical, Physical};
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;

use crate::chunk_problem::ChunkProblem;
use crate::device_name::UnsupportedScheme;
use crate::errno::errno_of;
use crate::nonblocking::{self, WouldBlock};
use crate::signature::Signature;

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(transparent)]
    WouldBlock(#[from] WouldBlock),
    #[error("no device given")]
    NoDevice,
    #[error(transparent)]
    Scheme(#[from] UnsupportedScheme),
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is {kind}, not an image file or a block device", path.display())]
    Kind { path: PathBuf, kind: &'static str },
    #[error("{} is in use by {} ({holder})", path.display(), holder.user())]
    InUse { path: PathBuf, holder: Holder },
    /// A file to be overwritten or replaced.
    #[error("{} holds a btrfs volume", path.display())]
    HoldsVolume { path: PathBuf },
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
    #[error("cannot discard {len} bytes at {offset} of {}: {source}", path.display())]
    Discard {
        path: PathBuf,
        offset: u64,
        len: u64,
        source: io::Error,
    },
    #[error("no device that is there can take the copies of logical {logical}")]
    NoCopy { logical: Logical },
    #[error("device {devid} is not being replaced")]
    NoReplacement { devid: DevId },
    #[error("{} cannot replace a device: {reason}", path.display())]
    ReplacementFailed { path: PathBuf, reason: String },
    #[error("chunk {logical} has parity: RAID5 and RAID6 are only read")]
    ParityWrite { logical: Logical },
    #[error("{} is not a btrfs device{}", path.display(), holds_text(*holds))]
    NotBtrfs {
        path: PathBuf,
        /// The known signature found there instead, if any.
        holds: Option<Signature>,
    },
    #[error("{problem}; {copy}")]
    FirstSuperblock {
        path: PathBuf,
        /// The defect of copy 0.
        problem: Box<DeviceError>,
        copy: SoundCopy,
    },
    #[error(
        "{} is not written: beside its superblock it has the mark of {signature} at {offset}; \
         'wipefs' shows and removes marks",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        signature: Signature,
        offset: u64,
    },
    #[error("{} has been changed by another program since it was opened: {change}", path.display())]
    Changed {
        path: PathBuf,
        change: SuperblockChange,
    },
    #[error(
        "the volume is not written: its superblock has {total_bytes} bytes, its devices {devices_bytes}; \
         'btrfs rescue fix-device-size' repairs it"
    )]
    TotalBytes {
        total_bytes: u64,
        devices_bytes: u64,
    },
    #[error(
        "the volume is not written: the item of device {devid} in the chunk tree names file system {item}, \
         the device is of {device}"
    )]
    DeviceFsid {
        devid: DevId,
        item: Uuid,
        device: Uuid,
    },
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
    #[error(
        "{} (generation {}) and {} (generation {}) both claim to be device {devid}",
        first.display(), generations[0], second.display(), generations[1]
    )]
    DuplicateDevice {
        devid: DevId,
        first: PathBuf,
        second: PathBuf,
        /// The generations of the first and of the second device.
        generations: [u64; 2],
    },
    #[error("{} and {} may both be device {devid}: name the one that is meant", first.display(), second.display())]
    Ambiguous {
        devid: DevId,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("device {devid} (uuid {uuid}) is missing")]
    Missing { devid: DevId, uuid: Uuid },
    #[error(
        "{}: device {devid} has {len_bytes} bytes, the volume expects {total_bytes}: truncated; \
         'degraded' or 'rescue=ibadroots' reads what is left", path.display()
    )]
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
    #[error(
        "cannot rebuild logical {logical}: {lost} stripes are lost, parity restores {parities}"
    )]
    Rebuild {
        logical: Logical,
        lost: usize,
        parities: usize,
    },
}

/// A readable superblock copy other than copy 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoundCopy {
    pub mirror: usize,
    pub offset: u64,
    pub generation: u64,
}

impl std::fmt::Display for SoundCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SoundCopy {
            mirror,
            offset,
            generation,
        } = self;
        write!(
            f,
            "copy {mirror} at {offset} is sound, of generation {generation}, and may be of an earlier state: \
             'mount -o ro,rescue=usebackuproot' reads it, 'btrfs-select-super -s {mirror}' puts it back"
        )
    }
}

/// A change of an open device's superblock by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockChange {
    /// Copy 0 no longer belongs to the volume.
    Replaced,
    /// There was another commit: generation `found` is above the last known one.
    Newer { found: u64, known: u64 },
}

impl std::fmt::Display for SuperblockChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SuperblockChange::Replaced => f.write_str("its superblock is not the volume's"),
            SuperblockChange::Newer { found, known } => {
                write!(f, "its superblock is of generation {found}, not {known}")
            }
        }
    }
}

fn holds_text(holds: Option<Signature>) -> String {
    holds.map_or_else(String::new, |signature| format!(": it holds {signature}"))
}

impl DeviceError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            DeviceError::WouldBlock(_) => Errno::AGAIN,
            DeviceError::Open { source, .. }
            | DeviceError::ReadRaw { source, .. }
            | DeviceError::WriteRaw { source, .. }
            | DeviceError::Discard { source, .. }
            | DeviceError::Flush { source, .. }
            | DeviceError::Read { source, .. } => errno_of(source),
            DeviceError::InUse { .. }
            | DeviceError::HoldsVolume { .. }
            | DeviceError::Changed { .. } => Errno::BUSY,
            DeviceError::Missing { .. } => Errno::NOENT,
            DeviceError::ReplacementFailed { .. } => Errno::IO,
            DeviceError::NoDevice
            | DeviceError::NoReplacement { .. }
            | DeviceError::Kind { .. }
            | DeviceError::NotBtrfs { .. }
            | DeviceError::OtherVolume { .. }
            | DeviceError::Ambiguous { .. }
            | DeviceError::DuplicateDevice { .. } => Errno::INVAL,
            DeviceError::Incomplete { .. }
            | DeviceError::Superblock { .. }
            | DeviceError::FirstSuperblock { .. }
            | DeviceError::Truncated { .. }
            | DeviceError::Chunk { .. }
            | DeviceError::NoChunk { .. }
            | DeviceError::NoMirror { .. }
            | DeviceError::Rebuild { .. } => Errno::UCLEAN,
            DeviceError::Unsupported { .. } | DeviceError::Scheme(_) => Errno::OPNOTSUPP,
            DeviceError::Unwritable { .. }
            | DeviceError::Foreign { .. }
            | DeviceError::TotalBytes { .. }
            | DeviceError::DeviceFsid { .. }
            | DeviceError::ParityWrite { .. }
            | DeviceError::NoCopy { .. } => Errno::ROFS,
        }
    }

    /// Returns whether the only problem is that the thread must not block.
    pub fn is_would_block(&self) -> bool {
        match self {
            DeviceError::WouldBlock(_) => true,
            DeviceError::ReadRaw { source, .. } | DeviceError::Read { source, .. } => {
                nonblocking::is_would_block(source)
            }
            _ => false,
        }
    }
}

/// Creates the error of a failed open.
pub(crate) fn open_error(path: &Path) -> impl Fn(io::Error) -> DeviceError {
    move |source| DeviceError::Open {
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn in_use(path: &Path, holder: Holder) -> DeviceError {
    DeviceError::InUse {
        path: path.to_owned(),
        holder,
    }
}

/// Another user of a device that prevents our access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Another process, with its pid if known, holds the lock of ubtrfs.
    Lock {
        /// The pid.
        pid: Option<u32>,
    },
    /// This process holds the lock: it has already opened the volume.
    ThisProcess,
    /// The file backs the loop device of this name.
    Loop(String),
    /// The device is claimed exclusively: mounted, part of another device, or opened with O_EXCL.
    Kernel,
}

impl Holder {
    fn user(&self) -> &'static str {
        match self {
            Holder::ThisProcess => "this process",
            _ => "another process",
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Lock { pid: None } => f.write_str("it holds the lock"),
            Holder::Lock { pid: Some(pid) } => write!(f, "process {pid} holds the lock"),
            Holder::ThisProcess => f.write_str("it has the volume open already"),
            Holder::Loop(name) => write!(f, "attached to {name}"),
            Holder::Kernel => f.write_str("mounted, or claimed by another program"),
        }
    }
}

/// A range without a readable mirror, with the error of each mirror.
#[derive(Debug, thiserror::Error)]
#[error(
    "no good mirror of {len} bytes at logical {logical}{}",
    attempts_text(attempts)
)]
pub struct ReadFailure {
    pub logical: Logical,
    pub len: u64,
    /// The block's index within the read.
    pub index: usize,
    pub attempts: Vec<Attempt>,
}

impl ReadFailure {
    /// Returns EIO, or EAGAIN if the read would have waited. Linux has no other errno for data that no mirror gives.
    pub fn errno(&self) -> Errno {
        if self.is_would_block() {
            Errno::AGAIN
        } else {
            Errno::IO
        }
    }

    /// Returns whether a mirror was read and its content is damaged, and no device failed.
    pub fn is_damage(&self) -> bool {
        let mut problems = self.attempts.iter().map(|attempt| &attempt.problem);
        problems.all(|problem| matches!(problem, AttemptProblem::Content))
    }

    /// Creates the failure of a read that would block on a thread that must not.
    pub(crate) fn would_block(logical: Logical, len: u64) -> ReadFailure {
        let attempt = Attempt {
            mirror: 0,
            place: None,
            problem: AttemptProblem::Device(WouldBlock.into()),
        };
        ReadFailure {
            logical,
            len,
            index: 0,
            attempts: vec![attempt],
        }
    }

    /// Returns whether the only problem is that the thread must not block.
    pub fn is_would_block(&self) -> bool {
        self.attempts.iter().any(|attempt| {
            matches!(&attempt.problem, AttemptProblem::Device(error) if error.is_would_block())
        })
    }
}

/// One attempt to read a block.
#[derive(Debug)]
pub struct Attempt {
    pub mirror: usize,
    /// Place of the bytes; None if there is no single place (no chunk).
    pub place: Option<(DevId, Physical)>,
    pub problem: AttemptProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum AttemptProblem {
    #[error("its checksum or header does not match")]
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
