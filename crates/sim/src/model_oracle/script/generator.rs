//! Random scripts.
//!
//! Operations are chosen according to the current model: most of them succeed, some fail in various ways.
//!
//! - GENERATOR-1: a script depends only on seed, shape and the initial model.

use super::action::Action;
use super::{Allocate, At, Bytes, Data, Flags, FsPath, Node, Op, RenameHow, Shape, Slot, XattrHow};
use crate::Rng;
use crate::fill;
use crate::manifest::Time;
use crate::model::{COMPRESSION, ModelFs, Wanted};

const SLOTS: u64 = 4;
const MAX_DEPTH: usize = 6;
/// Maximum attempts to find an unused name.
const TRIES: usize = 3;
const SECTOR: u64 = 4096;
/// Maximum bytes that are copied or compared in very large files.
const COPIED_BYTES: u64 = 1 << 20;

/// A generator of random operations.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    shape: Shape,
    /// The last write, and its offset.
    written: Option<(At, u64, Data)>,
    /// Ranges that were equal when they were created.
    alike: Option<Ranges>,
}

/// A range of one file, and an offset in another file or in the same one.
#[derive(Clone, Debug)]
struct Ranges {
    from: At,
    from_offset: u64,
    len_bytes: u64,
    to: At,
    to_offset: u64,
}

/// Generates `count` operations for an empty volume.
pub fn generate(shape: Shape, seed: u64, count: usize) -> Vec<Op> {
    let mut generator = Generator::new(shape, seed);
    generator.script(&mut ModelFs::default(), count)
}

impl Generator {
    pub fn new(shape: Shape, seed: u64) -> Generator {
        Generator {
            rng: Rng::new(seed),
            shape,
            written: None,
            alike: None,
        }
    }

    /// Generates `count` operations, and applies them to the model.
    pub fn script(&mut self, model: &mut ModelFs, count: usize) -> Vec<Op> {
        let mut ops = Vec::with_capacity(count);
        while ops.len() < count {
            let op = self.next_op(model);
            // A failing operation is part of the script, but operations out of scope are never executed.
            if model.apply(&op) != Err(super::OpError::OutOfScope) {
                ops.push(op);
            }
        }
        ops
    }

    /// Generates an operation for the current state.
    pub fn next_op(&mut self, model: &ModelFs) -> Op {
        loop {
            let action = self.action(model);
            if let Some(op) = self.op(action, model) {
                return op;
            }
        }
    }

    fn action(&mut self, model: &ModelFs) -> Action {
        let is_crowded = model.inode_count() > self.shape.inodes();
        let has_subvolumes = model.subvolume_count() > self.shape.subvolumes();
        let shape = self.shape;
        let weight = |action: Action| match action {
            Action::Create | Action::Mkdir | Action::Symlink | Action::Mknod if is_crowded => {
                shape.weight(action) / 8
            }
            Action::Unlink | Action::Rmdir if is_crowded => shape.weight(action) * 2,
            Action::CreateSubvolume | Action::Snapshot if has_subvolumes => 0,
            action => shape.weight(action),
        };
        let total = Action::ALL.iter().map(|action| weight(*action)).sum();
        let mut left = self.rng.below(total);
        for &action in Action::ALL {
            match left.checked_sub(weight(action)) {
                Some(rest) => left = rest,
                None => return action,
            }
        }
        Action::Sync
    }

    /// Generates an operation of one kind. Returns None if there is no suitable file.
    fn op(&mut self, action: Action, model: &ModelFs) -> Option<Op> {
        Some(match action {
            Action::Create => Op::Create {
                path: self.new_path(model)?,
                mode: self.mode(),
            },
            Action::Mkdir => Op::Mkdir {
                path: self.new_path(model)?,
                mode: self.mode() & !SET_GROUP_ID,
            },
            Action::Symlink => Op::Symlink {
                path: self.new_path(model)?,
                target: Bytes(self.link_target()),
            },
            Action::Mknod => Op::Mknod {
                path: self.new_path(model)?,
                node: self.node(),
                mode: self.mode(),
            },
            Action::Link => Op::Link {
                from: match self.rng.below(20) {
                    0 => self.existing(model, Wanted::Any)?,
                    _ => self.existing(model, Wanted::NoDir)?,
                },
                to: self.new_path(model)?,
            },
            Action::Unlink => Op::Unlink {
                path: self.existing(model, Wanted::NoDir)?,
            },
            Action::Rmdir => {
                let wanted = match self.rng.below(4) {
                    0 => Wanted::Dir,
                    _ => Wanted::EmptyDir,
                };
                Op::Rmdir {
                    path: self.existing(model, wanted)?,
                }
            }
            Action::Rename => self.rename(model, RenameHow::Replace)?,
            Action::NoReplace => self.rename(model, RenameHow::NoReplace)?,
            Action::Exchange => self.rename(model, RenameHow::Exchange)?,
            Action::Whiteout => self.rename(model, RenameHow::Whiteout)?,
            Action::MoveSubvolume => {
                let from = self.existing(model, Wanted::Subvolume)?;
                let (to, how) = match self.rng.below(4) {
                    0 => {
                        let other = self.existing(model, Wanted::Subvolume)?;
                        (other, RenameHow::Exchange)
                    }
                    _ => (self.new_path(model)?, RenameHow::Replace),
                };
                Op::Rename { from, to, how }
            }

            Action::Open => Op::Open {
                path: self.existing(model, Wanted::File)?,
                slot: Slot(self.rng.below(SLOTS) as u8),
            },
            Action::Close => Op::Close {
                slot: self.slot(model)?,
            },
            Action::Tmpfile => Op::Tmpfile {
                dir: self.existing(model, Wanted::OpenDir)?,
                mode: self.mode(),
                slot: Slot(self.rng.below(SLOTS) as u8),
            },
            Action::LinkOpen => Op::LinkOpen {
                slot: self.slot(model)?,
                to: self.new_path(model)?,
            },
            Action::Write => self.write(model)?,
            Action::Append => Op::Append {
                at: self.file(model)?,
                data: self.data(),
            },
            Action::Truncate => {
                let at = self.file(model)?;
                Op::Truncate {
                    size: self.offset(model, &at),
                    at,
                }
            }
            Action::Fallocate => self.fallocate(model)?,
            Action::CloneRange => self.clone_range(model)?,
            Action::CopyRange => self.copy_range(model)?,
            Action::Dedupe => self.dedupe(model)?,

            Action::SetXattr => self.set_xattr(model)?,
            Action::RemoveXattr => {
                let (path, name) = self.xattr(model)?;
                Op::RemoveXattr {
                    path,
                    name: Bytes(name),
                }
            }
            Action::Chmod => {
                let path = self.existing(model, Wanted::NoSymlink)?;
                let mode = self.mode();
                let clear = if model.is_dir_at(&path) {
                    SET_GROUP_ID
                } else {
                    0
                };
                Op::Chmod {
                    path,
                    mode: mode & !clear,
                }
            }
            Action::Chown => Op::Chown {
                path: self.existing(model, Wanted::Any)?,
                uid: self.owner(),
                gid: self.owner(),
            },
            Action::SetTimes => Op::SetTimes {
                path: self.existing(model, Wanted::Any)?,
                atime: self.time(),
                mtime: self.time(),
            },
            Action::SetFlags => self.set_flags(model)?,

            Action::CreateSubvolume => Op::CreateSubvolume {
                path: self.new_path(model)?,
            },
            Action::Snapshot => Op::Snapshot {
                from: match self.rng.below(12) {
                    0 => self.existing(model, Wanted::Any)?,
                    1 => FsPath::default(),
                    _ => self.existing(model, Wanted::Subvolume)?,
                },
                to: self.new_path(model)?,
                read_only: self.rng.one_in(3),
            },
            Action::DeleteSubvolume => Op::DeleteSubvolume {
                path: match self.rng.below(12) {
                    0 => self.existing(model, Wanted::Any)?,
                    _ => self.existing(model, Wanted::Subvolume)?,
                },
            },
            Action::SetReadOnly => {
                let wanted = match self.rng.below(3) {
                    0 => Wanted::Subvolume,
                    _ => Wanted::ReadOnlySubvolume,
                };
                let path = self.existing(model, wanted)?;
                Op::SetReadOnly {
                    read_only: !model.is_read_only_at(&path),
                    path,
                }
            }
            Action::SetDefault => Op::SetDefault {
                path: match self.rng.below(4) {
                    0 => FsPath::default(),
                    _ => self.existing(model, Wanted::Subvolume)?,
                },
            },
            // Few numbers, so that several subvolumes have the same origin.
            Action::SetReceived => Op::SetReceived {
                path: self.existing(model, Wanted::Subvolume)?,
                number: self.rng.below(5),
            },
            Action::GetReceived => Op::GetReceived {
                path: self.existing(model, Wanted::Subvolume)?,
            },

            Action::Read => {
                let at = self.file(model)?;
                Op::Read {
                    offset: self.offset(model, &at),
                    at,
                    len_bytes: self.shape.write_bytes(&mut self.rng),
                }
            }
            Action::List => Op::List {
                path: self.existing(model, Wanted::Dir)?,
            },
            Action::Stat => Op::Stat {
                path: self.existing(model, Wanted::Any)?,
            },
            Action::GetXattr => {
                let (path, name) = self.xattr(model)?;
                Op::GetXattr {
                    path,
                    name: Bytes(name),
                }
            }
            Action::GetFlags => Op::GetFlags {
                path: self.existing(model, Wanted::File)?,
            },

            Action::Sync => Op::Sync,
            Action::Commit => Op::Commit,
            Action::Fsync => Op::Fsync {
                at: self.file(model)?,
            },
            Action::Remount => Op::Remount,
            Action::DropCaches => Op::DropCaches,
        })
    }

    /// Chooses a path, mostly to an inode of the wanted kind. Sometimes it is of another kind, missing, or below
    /// something that is not a directory.
    fn existing(&mut self, model: &ModelFs, wanted: Wanted) -> Option<FsPath> {
        match self.rng.below(60) {
            0 => model.wander(&mut self.rng, Wanted::Any),
            1 => self.missing(model),
            _ => model.wander(&mut self.rng, wanted),
        }
    }

    fn missing(&mut self, model: &ModelFs) -> Option<FsPath> {
        let wanted = match self.rng.below(2) {
            0 => Wanted::Dir,
            _ => Wanted::Any,
        };
        let above = model.wander(&mut self.rng, wanted)?;
        Some(above.join(&self.shape.name(&mut self.rng)))
    }

    /// Chooses a path for a new name, which sometimes exists already.
    fn new_path(&mut self, model: &ModelFs) -> Option<FsPath> {
        let dir = match self.rng.below(50) {
            0 => model.wander(&mut self.rng, Wanted::Any)?,
            1 => self.missing(model)?,
            2 => return model.wander(&mut self.rng, Wanted::Any),
            3 => model.wander(&mut self.rng, Wanted::Dir)?,
            _ => model.wander(&mut self.rng, Wanted::OpenDir)?,
        };
        if dir.names().count() >= MAX_DEPTH {
            return None;
        }
        // In a small directory most names are in use.
        let mut path = dir.join(&self.shape.name(&mut self.rng));
        for _ in 0..TRIES {
            if !model.exists(&path) {
                break;
            }
            path = dir.join(&self.shape.name(&mut self.rng));
        }
        Some(path)
    }

    fn rename(&mut self, model: &ModelFs, how: RenameHow) -> Option<Op> {
        let from = self.existing(model, Wanted::Any)?;
        let to = match (how, self.rng.below(8)) {
            (RenameHow::Exchange, 4..) | (_, 0..2) => self.existing(model, Wanted::Any)?,
            // Into itself, or next to itself.
            (_, 2) if model.is_dir_at(&from) => from.join(&self.shape.name(&mut self.rng)),
            (_, 2..4) => {
                let (dir, _) = from.split()?;
                dir.join(&self.shape.name(&mut self.rng))
            }
            _ => self.new_path(model)?,
        };
        Some(Op::Rename { from, to, how })
    }

    fn slot(&mut self, model: &ModelFs) -> Option<Slot> {
        let slots: Vec<Slot> = model.open_slots().collect();
        let index = self.rng.below(slots.len().max(1) as u64) as usize;
        slots.get(index).copied()
    }

    fn file(&mut self, model: &ModelFs) -> Option<At> {
        if self.rng.one_in(6)
            && let Some(slot) = self.slot(model)
        {
            return Some(At::Slot(slot));
        }
        self.existing(model, Wanted::File).map(At::Path)
    }

    /// Chooses an offset within a file, at its end or past it, aligned or not, and rarely far away.
    fn offset(&mut self, model: &ModelFs, at: &At) -> u64 {
        let size = match at {
            At::Path(path) => model.size_at(path),
            At::Slot(_) => self.shape.file_bytes() / 2,
        };
        match self.rng.below(16) {
            0 => size,
            1 => 0,
            2 if self.rng.one_in(8) && self.shape != Shape::FullDisk => self.rng.below(1 << 40),
            3..6 => self.rng.below(self.shape.file_bytes() / SECTOR + 1) * SECTOR,
            6..9 => self.rng.below(self.shape.file_bytes()),
            _ => self.rng.below(size.min(self.shape.file_bytes()) + 1),
        }
    }

    fn data(&mut self) -> Data {
        let kinds = fill::Kind::ALL;
        let kind = match self.shape {
            Shape::FullDisk => fill::Kind::Random,
            _ => kinds[self.rng.below(kinds.len() as u64) as usize],
        };
        Data::Made {
            kind,
            len_bytes: self.shape.write_bytes(&mut self.rng),
            seed: self.rng.next_u64(),
        }
    }

    fn fallocate(&mut self, model: &ModelFs) -> Option<Op> {
        let at = self.file(model)?;
        let how = match (self.shape, self.rng.below(5)) {
            (Shape::FullDisk, _) | (_, 0) => Allocate::KeepSize,
            (_, 1) => Allocate::Extend,
            (_, 2) => Allocate::Zero,
            (_, 3) => Allocate::ZeroKeepSize,
            _ => Allocate::Punch,
        };
        let offset = self.rng.below(self.shape.file_bytes());
        let len_bytes = match self.rng.below(20) {
            0 => 0,
            1..8 => (self.rng.below(40) + 1) * SECTOR,
            _ => self.shape.write_bytes(&mut self.rng) as u64,
        };
        let offset = match self.rng.below(3) {
            0 => offset - offset % SECTOR,
            _ => offset,
        };
        Some(Op::Fallocate {
            at,
            how,
            offset,
            len_bytes,
        })
    }

    /// Generates a write, sometimes with the same data as an earlier write to another file.
    fn write(&mut self, model: &ModelFs) -> Option<Op> {
        let at = self.file(model)?;
        if let Some((from, from_offset, data)) = self.written.clone()
            && self.rng.one_in(6)
        {
            let offset = match self.rng.below(3) {
                0 => from_offset,
                _ => self.rng.below(self.shape.file_bytes() / SECTOR + 1) * SECTOR,
            };
            self.alike = Some(Ranges {
                from,
                from_offset,
                len_bytes: data.len_bytes() as u64,
                to: at.clone(),
                to_offset: offset,
            });
            return Some(Op::Write { at, offset, data });
        }
        let offset = self.offset(model, &at);
        let data = self.data();
        if offset.is_multiple_of(SECTOR) {
            self.written = Some((at.clone(), offset, data.clone()));
        }
        Some(Op::Write { at, offset, data })
    }

    /// Chooses ranges in whole sectors, at most as long as the source.
    fn ranges(&mut self, model: &ModelFs, most: u64) -> Option<Ranges> {
        let from = self.existing(model, Wanted::FilledFile)?;
        let to = match self.rng.below(3) {
            0 => from.clone(),
            _ => self.existing(model, Wanted::File)?,
        };
        let size = model.size_at(&from).min(self.shape.file_bytes() * 2);
        let from_offset = self.rng.below(size.div_ceil(SECTOR).max(1)) * SECTOR;
        let to_offset = match self.rng.below(3) {
            0 => from_offset,
            _ => self.rng.below(self.shape.file_bytes() / SECTOR + 2) * SECTOR,
        };
        let left = size.saturating_sub(from_offset);
        let len_bytes = match self.rng.below(3) {
            0 if left <= most => left,
            _ if left < SECTOR => left,
            _ => (1 + self.rng.below(left.min(most) / SECTOR)) * SECTOR,
        };
        Some(Ranges {
            from: At::Path(from),
            from_offset,
            len_bytes,
            to: At::Path(to),
            to_offset,
        })
    }

    fn clone_range(&mut self, model: &ModelFs) -> Option<Op> {
        let mut ranges = self.ranges(model, u64::MAX)?;
        match self.rng.below(30) {
            0 => ranges.from_offset += 1,
            1 => ranges.to_offset += 512,
            2 => ranges.len_bytes += self.rng.below(10_000),
            _ => {}
        }
        self.alike = Some(ranges.clone());
        Some(Op::Clone {
            from: ranges.from,
            from_offset: ranges.from_offset,
            len_bytes: ranges.len_bytes,
            to: ranges.to,
            to_offset: ranges.to_offset,
        })
    }

    fn copy_range(&mut self, model: &ModelFs) -> Option<Op> {
        let mut ranges = self.ranges(model, COPIED_BYTES)?;
        match self.rng.below(8) {
            0 => ranges.from_offset += self.rng.below(SECTOR),
            1 => ranges.to_offset += self.rng.below(SECTOR),
            2 => ranges.len_bytes += self.rng.below(10_000),
            3 => ranges.len_bytes = self.rng.below(ranges.len_bytes + 1),
            _ => {}
        }
        self.alike = Some(ranges.clone());
        Some(Op::CopyRange {
            from: ranges.from,
            from_offset: ranges.from_offset,
            len_bytes: ranges.len_bytes,
            to: ranges.to,
            to_offset: ranges.to_offset,
        })
    }

    /// Generates a deduplication, mostly of ranges that should be equal.
    fn dedupe(&mut self, model: &ModelFs) -> Option<Op> {
        let mut ranges = match &self.alike {
            Some(alike) if !self.rng.one_in(3) => alike.clone(),
            _ => self.ranges(model, COPIED_BYTES)?,
        };
        ranges.len_bytes = ranges.len_bytes.min(COPIED_BYTES);
        match self.rng.below(20) {
            0 => ranges.to_offset += 512,
            1 => ranges.len_bytes += SECTOR,
            // Up to an end that may only be the source's.
            2..8 => {}
            _ if ranges.len_bytes > SECTOR => ranges.len_bytes -= ranges.len_bytes % SECTOR,
            _ => {}
        }
        Some(Op::Dedupe {
            from: ranges.from,
            from_offset: ranges.from_offset,
            len_bytes: ranges.len_bytes,
            to: ranges.to,
            to_offset: ranges.to_offset,
        })
    }

    fn set_xattr(&mut self, model: &ModelFs) -> Option<Op> {
        let how = match self.rng.below(8) {
            0 => XattrHow::Create,
            1 => XattrHow::Replace,
            _ => XattrHow::Any,
        };
        if self.rng.one_in(10) {
            let wanted = match self.rng.below(8) {
                0 => Wanted::Any,
                1..4 => Wanted::Dir,
                _ => Wanted::File,
            };
            return Some(Op::SetXattr {
                path: self.existing(model, wanted)?,
                name: Bytes(COMPRESSION.to_vec()),
                value: Data::Bytes(self.compression()),
                how,
            });
        }
        let (path, name) = match self.rng.below(3) {
            0 => self.xattr(model)?,
            _ => {
                let path = self.existing(model, Wanted::Any)?;
                (path, self.shape.xattr_name(&mut self.rng))
            }
        };
        Some(Op::SetXattr {
            path,
            name: Bytes(name),
            value: Data::Made {
                kind: fill::Kind::Random,
                len_bytes: self.shape.xattr_bytes(&mut self.rng),
                seed: self.rng.next_u64(),
            },
            how,
        })
    }

    /// Chooses an extended attribute, mostly an existing one.
    fn xattr(&mut self, model: &ModelFs) -> Option<(FsPath, Vec<u8>)> {
        let path = self.existing(model, Wanted::WithXattrs)?;
        let mut names = model.xattrs_at(&path);
        if names.is_empty() || self.rng.one_in(10) {
            return Some((path, self.shape.xattr_name(&mut self.rng)));
        }
        let index = self.rng.below(names.len() as u64) as usize;
        Some((path, names.swap_remove(index)))
    }

    fn set_flags(&mut self, model: &ModelFs) -> Option<Op> {
        // Immutable and append-only files can be removed only after the flag is cleared.
        let protected = model.wander(&mut self.rng, Wanted::Protected);
        let (path, flags) = match (protected, self.rng.below(3)) {
            (Some(path), 0..2) => (path, Flags::default()),
            _ => {
                let wanted = match self.rng.below(4) {
                    0 => Wanted::Dir,
                    _ => Wanted::File,
                };
                let path = self.existing(model, wanted)?;
                let kind = self.rng.below(7);
                let flags = Flags {
                    immutable: kind == 0 && !path.is_root(),
                    append: kind == 1 && !path.is_root(),
                    nocow: kind == 3 || kind == 4 || kind > 4 && self.rng.one_in(20),
                    nodump: self.rng.one_in(4),
                    noatime: self.rng.one_in(4),
                    compress: kind == 5,
                    nocompress: kind == 6 || kind == 5 && self.rng.one_in(20),
                    sync: self.rng.one_in(12),
                    dirsync: self.rng.one_in(12),
                };
                (path, flags)
            }
        };
        Some(Op::SetFlags { path, flags })
    }

    fn mode(&mut self) -> u32 {
        const MODES: [u32; 10] = [
            0o644, 0o644, 0o755, 0o600, 0o000, 0o444, 0o4755, 0o6711, 0o1777, 0o7777,
        ];
        MODES[self.rng.below(MODES.len() as u64) as usize]
    }

    fn compression(&mut self) -> Vec<u8> {
        const VALUES: [&[u8]; 10] = [
            b"zlib", b"zlib", b"lzo", b"zstd", b"zstd", b"zstd:5", b"none", b"no", b"", b"gzip",
        ];
        VALUES[self.rng.below(VALUES.len() as u64) as usize].to_vec()
    }

    fn owner(&mut self) -> u32 {
        const OWNERS: [u32; 5] = [0, 1, 1000, 65_534, 4_000_000_000];
        OWNERS[self.rng.below(OWNERS.len() as u64) as usize]
    }

    fn time(&mut self) -> Time {
        const SECONDS: [i64; 6] = [0, -1, 1_000_000_000, 2_147_483_648, -2_147_483_649, 1 << 40];
        Time {
            seconds: SECONDS[self.rng.below(SECONDS.len() as u64) as usize],
            nanoseconds: self.rng.below(1_000_000_000) as u32,
        }
    }

    fn node(&mut self) -> Node {
        match self.rng.below(4) {
            0 => Node::Fifo,
            1 => Node::Socket,
            2 => Node::CharDevice(self.rng.below(4096) as u32, self.rng.below(1 << 20) as u32),
            _ => Node::BlockDevice(self.rng.below(300) as u32, self.rng.below(300) as u32),
        }
    }

    fn link_target(&mut self) -> Vec<u8> {
        let len = match self.rng.below(12) {
            0 => 4096,
            1..4 => 1 + self.rng.below(1500),
            _ => 1 + self.rng.below(40),
        };
        (0..len).map(|_| b'a' + self.rng.below(26) as u8).collect()
    }
}

/// The bit whose effect on new files in a directory is not modelled.
const SET_GROUP_ID: u32 = 0o2000;
