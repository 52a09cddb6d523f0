//! Ioctls for the whole volume.

use rustix::io::Errno;
use ubtrfs::BlockGroupKind;
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::DirEntries;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::inspect::{SubvolumeQuota, decode_quota};
use ubtrfs_fuse::ioctl_args::{self as args, Label, SpaceList, TrimRange};
use zerocopy::FromZeros;
use zerocopy::native_endian::U64;

use super::Asked;
use super::subvolume::text;
use crate::presentation::profiles::{GroupType, GroupUsage};

/// The space of a volume, by profile.
#[derive(Debug)]
pub(crate) struct Spaces {
    pub(crate) infos: Vec<GroupUsage>,
    /// The size of the global reserve, and its used part.
    pub(crate) reserve: (u64, u64),
}

/// Returns the type for block group flags of the kernel.
pub(super) fn group_type(flags: BlockGroupFlags) -> GroupType {
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let kinds = [
        (BlockGroupFlags::DATA, BlockGroupKind::Data),
        (BlockGroupFlags::METADATA, BlockGroupKind::Metadata),
        (BlockGroupFlags::SYSTEM, BlockGroupKind::System),
        (
            BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
            BlockGroupKind::Mixed,
        ),
    ];
    GroupType {
        kind: kinds
            .into_iter()
            .find(|(of, _)| *of == kind)
            .map(|(_, kind)| kind),
        profile: flags.profile(),
    }
}

impl Asked {
    /// Makes all changes to the volume durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.ask::<{ args::SYNC }, _>(&mut ())
    }

    /// Discards free space, and returns the discarded bytes.
    pub(crate) fn trim(&self, start: u64, len: u64, min_bytes: u64) -> Result<u64, Errno> {
        let mut range = TrimRange {
            start: start.into(),
            len: len.into(),
            minlen: min_bytes.into(),
        };
        self.ask::<{ args::FITRIM }, _>(&mut range)?;
        Ok(range.len.get())
    }

    pub(crate) fn label(&self) -> Result<Vec<u8>, Errno> {
        let mut label: Label = [0; 256];
        self.ask::<{ args::GET_FSLABEL }, _>(&mut label)?;
        Ok(text(&label).to_vec())
    }

    /// Sets the label. A label that is too long has no terminator in the field and is refused.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<(), Errno> {
        let mut field: Label = [0; 256];
        let len = label.len().min(field.len());
        field[..len].copy_from_slice(&label[..len]);
        self.ask::<{ args::SET_FSLABEL }, _>(&mut field)
    }

    pub(crate) fn set_default(&self, id: RootId) -> Result<(), Errno> {
        self.ask::<{ args::DEFAULT_SUBVOL }, _>(&mut U64::new(id.0))
    }

    /// Returns the default subvolume, for callers that may search trees.
    pub(crate) fn default_subvolume(&self) -> Result<RootId, Errno> {
        let key = |offset| Key::new(objectid::ROOT_TREE_DIR, KeyType::DIR_ITEM, offset);
        let mut found = RootId::FS_TREE;
        self.search(RootId::ROOT_TREE, key(0), key(u64::MAX), &mut |_, item| {
            let entry = DirEntries::new(item).find(|entry| entry.name == b"default");
            if let Some(entry) = entry {
                found = RootId(entry.location().objectid);
            }
        })?;
        Ok(found)
    }

    /// Returns the quota of a subvolume. Returns None if quotas are off, do not cover the subvolume, or the
    /// caller may not see them.
    pub(crate) fn subvolume_quota(&self, id: RootId) -> Result<Option<SubvolumeQuota>, Errno> {
        let item = |kind| self.item(RootId::QUOTA_TREE, Key::new(0, kind, id.0));
        let info = match item(KeyType::QGROUP_INFO) {
            Err(Errno::NOENT | Errno::PERM) => return Ok(None),
            info => info?,
        };
        let limit = item(KeyType::QGROUP_LIMIT)?;
        Ok(info.and_then(|info| decode_quota(&info, limit.as_deref())))
    }

    pub(crate) fn spaces(&self) -> Result<Spaces, Errno> {
        let mut list = SpaceList::new_zeroed();
        list.space_slots.set(list.spaces.len() as u64);
        match self.ask::<{ args::SPACE_INFO }, _>(&mut list) {
            // From FUSE, which does not support lists beyond the size in the ioctl number.
            Err(Errno::NOTTY) => self.ask::<{ args::SPACE_LIST }, _>(&mut list)?,
            asked => asked?,
        }
        let mut spaces = Spaces {
            infos: Vec::new(),
            reserve: (0, 0),
        };
        let returned = usize::try_from(list.total_spaces.get()).unwrap_or(usize::MAX);
        for space in list.spaces.iter().take(returned) {
            let flags = space.flags.get();
            let (total, used) = (space.total_bytes.get(), space.used_bytes.get());
            if flags & args::GLOBAL_RESERVE != 0 {
                spaces.reserve = (total, used);
            } else {
                spaces.infos.push(GroupUsage {
                    group: group_type(BlockGroupFlags::from_bits_retain(flags)),
                    total,
                    used,
                })
            }
        }
        Ok(spaces)
    }
}
