//! The subvolumes of a mount: all of them for callers that may search trees. Other callers get those that are
//! reachable from the mount point.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rustix::io::Errno;
use ubtrfs::Uuid;
use ubtrfs_format::ids::{InodeNr, RootId, Transid, objectid};
use ubtrfs_format::item::{RootItem, RootRef, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{FileId, SubvolumeInfo, SubvolumePlace};
use ubtrfs_fuse::ioctl_args::{self as args, InoLookup, InoLookupUser, SubvolInfo, SubvolRootref};
use zerocopy::FromZeros;

use super::Asked;
use super::subvolume::text;

/// The subvolumes that were found.
#[derive(Debug)]
pub(crate) struct Subvolumes {
    pub(crate) infos: Vec<SubvolumeInfo>,
    /// Paths of directories that contain subvolumes, each within its own subvolume.
    pub(crate) dirs: HashMap<FileId, Vec<u8>>,
    /// The subvolume that contains all others.
    pub(crate) top: RootId,
    /// Whether the list is complete.
    pub(crate) is_all: bool,
}

impl Subvolumes {
    /// Queries the subvolumes of a volume. `asked` is anywhere in the volume. A caller that may not see all
    /// gets those below `top`.
    pub(crate) fn ask(asked: &Asked, top: &Path) -> Result<Subvolumes, Errno> {
        match Subvolumes::searched(asked) {
            Err(Errno::PERM) => match Asked::at(top) {
                Err(Errno::ACCESS) => Subvolumes::reached(asked),
                top => Subvolumes::reached(&top?),
            },
            found => found,
        }
    }

    /// Asks for some subvolumes and those above them, each by its id. Those that do not exist are left out.
    ///
    /// # Errors
    ///
    /// PERM: the caller may not search trees.
    pub(crate) fn ask_some(asked: &Asked, wanted: Vec<RootId>) -> Result<Subvolumes, Errno> {
        let mut infos: BTreeMap<RootId, SubvolumeInfo> = BTreeMap::new();
        for id in wanted {
            let mut next = Some(id);
            while let Some(at) = next
                // A loop of subvolumes comes back to one that was found.
                && !infos.contains_key(&at)
                && let Some(info) = asked.found_between(at, at)?.pop()
            {
                next = info.place.as_ref().map(|place| place.dir.root);
                infos.insert(at, info);
            }
        }
        Ok(Subvolumes::with_paths(
            asked,
            infos.into_values().collect(),
            false,
        ))
    }

    fn searched(asked: &Asked) -> Result<Subvolumes, Errno> {
        let infos = asked.found_between(RootId::FS_TREE, RootId(RootId::LAST_FREE))?;
        Ok(Subvolumes::with_paths(asked, infos, true))
    }

    /// Asks for the paths of the directories that hold subvolumes.
    fn with_paths(asked: &Asked, infos: Vec<SubvolumeInfo>, is_all: bool) -> Subvolumes {
        let mut dirs = HashMap::new();
        for info in &infos {
            if let Some(SubvolumePlace { dir, .. }) = info.place
                && !dirs.contains_key(&dir)
                && let Ok(path) = asked.directory_path(dir)
            {
                dirs.insert(dir, path);
            }
        }
        Subvolumes {
            infos,
            dirs,
            top: RootId::FS_TREE,
            is_all,
        }
    }

    /// Returns the subvolumes that are reachable from a directory.
    fn reached(top: &Asked) -> Result<Subvolumes, Errno> {
        let info = info_of(&top.subvolume_info()?);
        let mut found = Subvolumes {
            top: info.id,
            infos: vec![info],
            dirs: HashMap::new(),
            is_all: false,
        };
        found.reach_below(top, found.top)?;
        found.infos.sort_by_key(|info| info.id);
        Ok(found)
    }

    /// Adds the subvolumes below a subvolume. Skips those that the caller may not read, or that another mount
    /// hides.
    fn reach_below(&mut self, above: &Asked, id: RootId) -> Result<(), Errno> {
        for (child, dirid) in above.references()? {
            let Ok((dir_path, name)) = above.place_of(child, dirid) else {
                continue;
            };
            let mut path = dir_path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let Ok(subvolume) = above.below(&path) else {
                continue;
            };
            let Ok(info) = subvolume.subvolume_info() else {
                continue;
            };
            if RootId(info.treeid.get()) != child {
                continue;
            }
            self.dirs.insert(FileId::new(id, InodeNr(dirid)), dir_path);
            self.infos.push(info_of(&info));
            self.reach_below(&subvolume, child)?;
        }
        Ok(())
    }
}

impl Asked {
    /// Searches for the subvolumes with ids from `first` to `last`.
    fn found_between(&self, first: RootId, last: RootId) -> Result<Vec<SubvolumeInfo>, Errno> {
        let mut infos: Vec<SubvolumeInfo> = Vec::new();
        let from = Key::new(first.0, KeyType::ROOT_ITEM, 0);
        let to = Key::new(last.0, KeyType::ROOT_BACKREF, u64::MAX);
        self.search(RootId::ROOT_TREE, from, to, &mut |key, item| {
            let id = RootId(key.objectid);
            if !id.is_subvolume() {
                return;
            }
            match key.item_type {
                KeyType::ROOT_ITEM => {
                    infos.extend(RootItem::decode(item).map(|item| SubvolumeInfo {
                        id,
                        item,
                        snapshot_transid: (key.offset != 0).then_some(Transid(key.offset)),
                        place: None,
                    }))
                }
                KeyType::ROOT_BACKREF => {
                    let info = infos.last_mut().filter(|info| info.id == id);
                    if let (Some(info), Some(reference)) = (info, RootRef::decode(item)) {
                        info.place = Some(SubvolumePlace {
                            dir: FileId::new(RootId(key.offset), InodeNr(reference.dirid)),
                            name: reference.name.to_vec(),
                            sequence: reference.sequence,
                        });
                    }
                }
                _ => {}
            }
        })?;
        Ok(infos)
    }

    /// Searches for the subvolumes right below another, by ascending id.
    pub(crate) fn nested_subvolumes(&self, id: RootId) -> Result<Vec<RootId>, Errno> {
        let key = |offset| Key::new(id.0, KeyType::ROOT_REF, offset);
        let mut found = Vec::new();
        self.search(RootId::ROOT_TREE, key(0), key(u64::MAX), &mut |key, _| {
            found.push(RootId(key.offset));
        })?;
        Ok(found)
    }

    /// Searches the UUID tree, which may lack some, for the subvolumes that have this UUID or were received from one
    /// that has it.
    pub(crate) fn subvolumes_of_uuid(&self, uuid: &Uuid) -> Result<Vec<RootId>, Errno> {
        let (objectid, offset) = uuid.key_halves();
        let mut found = Vec::new();
        for kind in [KeyType::UUID_KEY_RECEIVED_SUBVOL, KeyType::UUID_KEY_SUBVOL] {
            match self.item(RootId::UUID_TREE, Key::new(objectid, kind, offset)) {
                Ok(item) => {
                    let ids = item.as_deref().unwrap_or_default().as_chunks::<8>().0;
                    found.extend(ids.iter().map(|id| RootId(u64::from_le_bytes(*id))));
                }
                // A volume of an old kernel has no such tree.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Searches for the snapshots of a subvolume among all root items, and puts its own id before theirs.
    pub(crate) fn with_snapshots(&self, id: RootId) -> Result<Vec<RootId>, Errno> {
        let mut found = vec![id];
        let uuid = self.root_item(id)?.map(|item| item.uuid);
        let Some(uuid) = uuid.filter(|uuid| !uuid.is_nil()) else {
            return Ok(found);
        };
        let from = Key::new(RootId::FIRST_FREE, KeyType::ROOT_ITEM, 0);
        let to = Key::new(RootId::LAST_FREE, KeyType::ROOT_ITEM, u64::MAX);
        self.search(RootId::ROOT_TREE, from, to, &mut |key, item| {
            if key.item_type == KeyType::ROOT_ITEM
                && RootItem::decode(item).is_some_and(|item| item.parent_uuid == uuid)
            {
                found.push(RootId(key.objectid));
            }
        })?;
        Ok(found)
    }

    /// Returns the subvolumes in the root tree, and whether each is alive. Deleted ones wait to be freed.
    pub(crate) fn subvolume_states(&self) -> Result<BTreeMap<RootId, bool>, Errno> {
        let from = Key::new(RootId::FIRST_FREE, KeyType::ROOT_ITEM, 0);
        let to = Key::new(RootId::LAST_FREE, KeyType::ROOT_ITEM, u64::MAX);
        let mut states = BTreeMap::new();
        self.search(RootId::ROOT_TREE, from, to, &mut |key, item| {
            if let (KeyType::ROOT_ITEM, Some(item)) = (key.item_type, RootItem::decode(item)) {
                states.insert(RootId(key.objectid), item.refs.get() > 0);
            }
        })?;
        // The kernel's btrfs updates their root items only with the next commit.
        let orphan = |offset| Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, offset);
        let (from, to) = (orphan(0), orphan(u64::MAX));
        self.search(RootId::ROOT_TREE, from, to, &mut |key, _| {
            if let Some(is_alive) = states.get_mut(&RootId(key.offset)) {
                *is_alive = false;
            }
        })?;
        Ok(states)
    }

    pub(crate) fn has_root_item(&self, id: RootId) -> Result<bool, Errno> {
        Ok(self.root_item(id)?.is_some())
    }

    pub(crate) fn root_item(&self, id: RootId) -> Result<Option<RootItem>, Errno> {
        let key = |offset| Key::new(id.0, KeyType::ROOT_ITEM, offset);
        let mut found = None;
        let (from, to) = (key(0), key(u64::MAX));
        self.search(RootId::ROOT_TREE, from, to, &mut |_, item| {
            found = RootItem::decode(item);
        })?;
        Ok(found)
    }

    /// Returns the path of a directory from the root of its subvolume.
    pub(crate) fn directory_path(&self, dir: FileId) -> Result<Vec<u8>, Errno> {
        let mut lookup = InoLookup::new_zeroed();
        lookup.treeid.set(dir.root.0);
        lookup.objectid.set(dir.ino.0);
        self.ask::<{ args::INO_LOOKUP }, _>(&mut lookup)?;
        Ok(without_slash(&lookup.name))
    }

    /// Returns the subvolumes directly below the file's subvolume, each with its parent directory.
    fn references(&self) -> Result<Vec<(RootId, u64)>, Errno> {
        let mut found = Vec::new();
        let mut args = SubvolRootref::new_zeroed();
        loop {
            let asked = self.ask::<{ args::GET_SUBVOL_ROOTREF }, _>(&mut args);
            let returned = args.rootref.iter().take(args.num_items.into());
            found.extend(returned.map(|of| (RootId(of.treeid.get()), of.dirid.get())));
            match asked {
                // There are more, and the argument has the position to continue from.
                Err(Errno::OVERFLOW) if args.num_items > 0 => {}
                asked => return asked.map(|()| found),
            }
        }
    }

    /// Returns the relative path of a subvolume's parent directory, and the subvolume's name.
    fn place_of(&self, id: RootId, dirid: u64) -> Result<(Vec<u8>, Vec<u8>), Errno> {
        let mut lookup = InoLookupUser::new_zeroed();
        lookup.treeid.set(id.0);
        lookup.dirid.set(dirid);
        self.ask::<{ args::INO_LOOKUP_USER }, _>(&mut lookup)?;
        Ok((without_slash(&lookup.path), text(&lookup.name).to_vec()))
    }
}

/// Returns a path without the trailing slash of directory paths.
fn without_slash(field: &[u8]) -> Vec<u8> {
    let path = text(field);
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

pub(crate) fn info_of(info: &SubvolInfo) -> SubvolumeInfo {
    let place = SubvolumePlace {
        dir: FileId::new(RootId(info.parent_id.get()), InodeNr(info.dirid.get())),
        name: text(&info.name).to_vec(),
        sequence: 0,
    };
    let mut item = RootItem::new_zeroed();
    // It was reached by its name, so it is alive.
    item.refs.set(1);
    item.generation.set(info.generation.get());
    item.generation_v2.set(info.generation.get());
    item.flags.set(info.flags.get());
    item.uuid = Uuid(info.uuid);
    item.parent_uuid = Uuid(info.parent_uuid);
    item.received_uuid = Uuid(info.received_uuid);
    item.ctransid.set(info.ctransid.get());
    item.otransid.set(info.otransid.get());
    item.stransid.set(info.stransid.get());
    item.rtransid.set(info.rtransid.get());
    item.ctime = timespec(&info.ctime);
    item.otime = timespec(&info.otime);
    item.stime = timespec(&info.stime);
    item.rtime = timespec(&info.rtime);
    SubvolumeInfo {
        id: RootId(info.treeid.get()),
        // The ioctl does not return the snapshot mark of the root tree.
        snapshot_transid: (!item.parent_uuid.is_nil()).then_some(Transid(info.otransid.get())),
        item,
        place: (info.parent_id.get() != 0).then_some(place),
    }
}

fn timespec(time: &args::Timespec) -> Timespec {
    Timespec {
        sec: (time.sec.get() as i64).into(),
        nsec: time.nsec.get().into(),
    }
}
