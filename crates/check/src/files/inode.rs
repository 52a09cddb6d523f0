//! One inode: its state while its items are read, and the final checks.

use ubtrfs_format::item::{FileExtent, FileKind, InodeFlags, InodeItem};
use ubtrfs_format::limits::MAX_TARGET_BYTES;

use super::Rules;
use crate::fault::Fault;

/// The relevant fields of the INODE_ITEM.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemFields {
    pub(super) flags: InodeFlags,
    mode: u32,
    nlink: u32,
    size: u64,
    nbytes: u64,
}

impl ItemFields {
    pub(super) fn new(item: &InodeItem) -> ItemFields {
        ItemFields {
            flags: item.flags(),
            mode: item.mode.get(),
            nlink: item.nlink.get(),
            size: item.size.get(),
            nbytes: item.nbytes.get(),
        }
    }

    fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Inode {
    pub(super) number: u64,
    /// None if the inode has items but no INODE_ITEM.
    pub(super) item: Option<ItemFields>,
    pub(super) names: u64,
    pub(super) has_entries: bool,
    /// The total length of all names, counted for both DIR_ITEM and DIR_INDEX.
    pub(super) entries_bytes: u64,
    has_extents: bool,
    extents_bytes: u64,
    /// The end of the last extent.
    extents_end: u64,
    /// The first range without an extent.
    gap: Option<(u64, u64)>,
    inline_bytes: Option<u64>,
    /// Whether the inline extent is uncompressed and ends with a NUL.
    ends_with_nul: bool,
    /// Start of the last extent with data.
    last_data: Option<u64>,
}

impl Inode {
    pub(crate) fn new(number: u64) -> Inode {
        Inode {
            number,
            ..Inode::default()
        }
    }

    /// Returns the file type as in directory entries, or 0 if it is unknown.
    pub(super) fn kind(&self) -> u8 {
        let kind = self.item.and_then(|item| item.kind());
        kind.map_or(0, FileKind::raw)
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory.raw()
    }

    /// Returns whether the inode's data has no checksums.
    pub(super) fn is_unsummed(&self) -> bool {
        let flags = self.item.map(|item| item.flags);
        flags.is_some_and(|flags| flags.contains(InodeFlags::NODATASUM))
    }

    /// Returns whether the inode needs an orphan item.
    pub(super) fn is_unlinked(&self) -> bool {
        self.item.is_some_and(|item| item.nlink == 0)
    }

    /// Adds an extent. Extents must be added in order of file offset.
    pub(crate) fn add_extent(
        &mut self,
        start: u64,
        extent: &FileExtent<'_>,
        rules: Rules,
    ) -> Result<(), Fault> {
        self.has_extents = true;
        let before_end = self.extents_end;
        if start > before_end && self.gap.is_none() {
            self.gap = Some((before_end, start));
        }
        let length = match extent {
            FileExtent::Inline { head, data } => {
                let ram_bytes = head.ram_bytes.get();
                self.ends_with_nul = head.compression == 0 && data.last() == Some(&0);
                self.extents_bytes = self.extents_bytes.saturating_add(ram_bytes);
                self.inline_bytes = Some(ram_bytes);
                ram_bytes
                    .checked_next_multiple_of(rules.sectorsize)
                    .unwrap_or(u64::MAX)
            }
            FileExtent::Regular { body, .. } => {
                if body.disk().is_some() {
                    self.extents_bytes = self.extents_bytes.saturating_add(body.num_bytes.get());
                }
                body.num_bytes.get()
            }
        };
        self.extents_end = before_end.max(start.saturating_add(length));
        if start < before_end {
            return Err(Fault::FileExtentOverlap { before_end });
        }
        match extent {
            FileExtent::Inline { head, .. } => {
                let (ram_bytes, limit) = (head.ram_bytes.get(), rules.sectorsize);
                if ram_bytes > limit {
                    Err(Fault::InlineSize { ram_bytes, limit })
                } else {
                    Ok(())
                }
            }
            FileExtent::Regular {
                head,
                body,
                prealloc,
            } => {
                let is_hole = body.disk().is_none();
                if !is_hole {
                    if !prealloc {
                        self.last_data = Some(start);
                    }
                    let (generation, limit) = (head.generation.get(), rules.generation);
                    if generation == 0 || generation > limit {
                        return Err(Fault::FileExtentGeneration { generation, limit });
                    }
                    let (compression, encryption) = (head.compression, head.encryption);
                    let is_plain = (compression, encryption) == (0, 0);
                    if *prealloc && !is_plain {
                        return Err(Fault::PreallocEncoded {
                            compression,
                            encryption,
                        });
                    }
                }
                let (offset, num_bytes) = (body.offset.get(), body.num_bytes.get());
                let (ram_bytes, disk_bytes) = (head.ram_bytes.get(), body.disk_num_bytes.get());
                // The length of a hole or a compressed extent is only in `ram_bytes`.
                let extent_bytes = if is_hole || head.compression != 0 {
                    ram_bytes
                } else {
                    ram_bytes.min(disk_bytes)
                };
                let end = offset.checked_add(num_bytes);
                if num_bytes == 0 || end.is_none_or(|end| end > extent_bytes) {
                    return Err(Fault::FileExtentBounds {
                        offset,
                        num_bytes,
                        extent_bytes,
                    });
                }
                Ok(())
            }
        }
    }

    /// Returns whether the inline extent is the target of a symlink of `size` bytes. `mkfs.btrfs --rootdir` of
    /// btrfs-progs 6.14 appends a NUL to the target, which is not part of the size.
    pub(crate) fn has_target(&self, size: u64) -> bool {
        let Some(inline_bytes) = self.inline_bytes else {
            return false;
        };
        inline_bytes == size || self.ends_with_nul && inline_bytes.checked_sub(1) == Some(size)
    }

    pub(super) fn check(&self, rules: Rules, add: &mut dyn FnMut(Fault)) {
        let Some(item) = self.item else {
            add(Fault::InodeMissing {});
            return;
        };
        let is_dir = self.is_dir();
        if is_dir && self.names > 1 {
            add(Fault::DirLinks { found: self.names });
        } else if u64::from(item.nlink) != self.names {
            add(Fault::InodeNlink {
                nlink: item.nlink,
                found: self.names,
            });
        }
        let mode = item.mode;
        if is_dir {
            // During its deletion, the size is only updated at the end.
            if item.size != self.entries_bytes && item.nlink > 0 {
                add(Fault::DirSize {
                    size: item.size,
                    found: self.entries_bytes,
                });
            }
        } else if self.has_entries {
            add(Fault::EntriesOfOther { mode });
        }
        match item.kind() {
            Some(FileKind::Regular) => self.check_file(&item, rules, add),
            Some(FileKind::Symlink) => self.check_symlink(&item, add),
            _ if self.has_extents => add(Fault::FileExtentOfOther { mode }),
            _ => {}
        }
    }

    /// Checks the size and the extents of a file. Unlinked files are skipped, because they may be half deleted.
    fn check_file(&self, item: &ItemFields, rules: Rules, add: &mut dyn FnMut(Fault)) {
        if item.nlink == 0 {
            return;
        }
        self.check_nbytes(item, add);
        let size = item.size;
        let past_end = size.checked_next_multiple_of(rules.sectorsize);
        if let (Some(last), Some(past_end)) = (self.last_data, past_end)
            && last >= past_end
        {
            add(Fault::FileExtentBeyondSize { size });
        }
        if rules.no_holes {
            return;
        }
        match self.gap {
            Some((start, end)) if start < size => add(Fault::FileExtentGap { start, end }),
            _ if self.extents_end < size => add(Fault::FileExtentGap {
                start: self.extents_end,
                end: size,
            }),
            _ => {}
        }
    }

    fn check_nbytes(&self, item: &ItemFields, add: &mut dyn FnMut(Fault)) {
        if item.nbytes != self.extents_bytes {
            add(Fault::InodeNbytes {
                nbytes: item.nbytes,
                found: self.extents_bytes,
            });
        }
    }

    fn check_symlink(&self, item: &ItemFields, add: &mut dyn FnMut(Fault)) {
        let flags = item.flags & (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if !flags.is_empty() {
            let flags = flags.bits();
            add(Fault::SymlinkFlags { flags });
        }
        if item.nlink == 0 {
            return;
        }
        self.check_nbytes(item, add);
        let has_sound_size = (1..=MAX_TARGET_BYTES as u64).contains(&item.size);
        if !self.has_target(item.size) || !has_sound_size {
            add(Fault::SymlinkTarget { size: item.size });
        }
    }
}
