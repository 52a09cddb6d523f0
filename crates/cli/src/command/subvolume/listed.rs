//! The list of subvolumes, from an open volume or a mount.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use ubtrfs::{SubvolumeInfo, Uuid, Volume};
use ubtrfs_engine::{FileId, FileTime, SubvolumeInfo as EngineInfo};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{RootItemFlags, Timespec};

use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{self, Asked};
use crate::volume_access::location::Location;
use crate::volume_access::reason::Reasoned;

/// The displayed properties of a subvolume.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) id: RootId,
    /// The subvolume that contains it.
    parent: Option<RootId>,
    /// The path within its parent subvolume.
    path: Option<Vec<u8>>,
    /// The last name of the path, which may be known without the path. None without a place.
    pub(super) name: Option<Vec<u8>>,
    pub(super) uuid: Option<Uuid>,
    pub(super) parent_uuid: Option<Uuid>,
    pub(super) received_uuid: Option<Uuid>,
    pub(super) is_snapshot: bool,
    pub(super) is_read_only: bool,
    pub(super) generation: u64,
    pub(super) created_generation: u64,
    pub(super) created: Option<SystemTime>,
    pub(super) sent_generation: u64,
    pub(super) sent: Option<SystemTime>,
    pub(super) received_generation: u64,
    pub(super) received: Option<SystemTime>,
}

impl Listed {
    /// Creates an entry from a subvolume of a volume. `path` is relative to its parent subvolume.
    fn of_volume(info: SubvolumeInfo, path: Option<Vec<u8>>) -> Listed {
        let is_known = |time: &SystemTime| FileTime::from(*time).sec != 0;
        Listed {
            id: RootId(info.id),
            parent: info.parent_id.map(RootId),
            name: path.as_deref().and_then(last_name),
            path,
            uuid: Some(info.uuid).filter(|uuid| !uuid.is_nil()),
            parent_uuid: info.parent_uuid,
            received_uuid: info.received_uuid,
            is_snapshot: info.is_snapshot,
            is_read_only: info.is_read_only,
            generation: info.generation,
            created_generation: info.created_generation,
            created: Some(info.created).filter(is_known),
            sent_generation: info.sent_generation,
            sent: info.sent,
            received_generation: info.received_generation,
            received: info.received,
        }
    }

    /// Creates an entry from a mount's information. `dir_path` returns the path of a directory in its
    /// subvolume.
    fn of_mount(info: EngineInfo, dir_path: impl Fn(FileId) -> Option<Vec<u8>>) -> Listed {
        let item = info.item;
        let some = |uuid: Uuid| Some(uuid).filter(|uuid| !uuid.is_nil());
        let time = |time: Timespec| (time.sec.get() != 0).then(|| FileTime::from(time).into());
        let path = info.place.as_ref().and_then(|place| {
            let mut path = dir_path(place.dir)?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&place.name);
            Some(path)
        });
        Listed {
            id: info.id,
            parent: info.place.as_ref().map(|place| place.dir.root),
            path,
            name: info.place.map(|place| place.name),
            uuid: some(item.uuid),
            parent_uuid: some(item.parent_uuid),
            received_uuid: some(item.received_uuid),
            is_snapshot: info.snapshot_transid.is_some(),
            is_read_only: item.flags().contains(RootItemFlags::RDONLY),
            generation: item.generation.get(),
            created_generation: match (item.otransid.get(), info.snapshot_transid) {
                // Volumes of old kernels have it only for snapshots.
                (0, Some(transid)) => transid.0,
                (otransid, _) => otransid,
            },
            created: time(item.otime),
            sent_generation: item.stransid.get(),
            sent: time(item.stime),
            received_generation: item.rtransid.get(),
            received: time(item.rtime),
        }
    }
}

fn last_name(path: &[u8]) -> Option<Vec<u8>> {
    path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec)
}

/// Returns the rest of a path below a directory. Both paths begin at the top.
fn path_from<'p>(above: &Path, path: &'p Path) -> Option<&'p [u8]> {
    let path = path.as_os_str().as_bytes();
    match above.as_os_str().as_bytes() {
        b"" => Some(path),
        above => path.strip_prefix(above)?.strip_prefix(b"/"),
    }
}

/// The subvolumes of a volume with their places.
#[derive(Debug)]
pub(super) struct Subvolumes {
    by_id: BTreeMap<RootId, Listed>,
    /// The start of displayed paths.
    pub(super) top: RootId,
    /// Whether the list is complete. A caller that does not see all subvolumes gets no deleted ones.
    pub(super) is_all: bool,
}

impl Subvolumes {
    pub(super) fn read(volume: &Volume) -> anyhow::Result<Subvolumes> {
        Ok(Subvolumes::of_volume(volume.subvolumes().reason()?, true))
    }

    /// Reads a subvolume and its ancestors, without reading all others.
    pub(super) fn read_one(volume: &Volume, id: RootId) -> anyhow::Result<Subvolumes> {
        let mut infos: Vec<SubvolumeInfo> = Vec::new();
        let mut next = Some(id.0);
        while let Some(at) = next
            // A loop of subvolumes returns to one that was read.
            && infos.iter().all(|info| info.id != at)
            && let Some(info) = volume.subvolume_info(at).reason()?
        {
            next = info.parent_id;
            infos.push(info);
        }
        Ok(Subvolumes::of_volume(infos, false))
    }

    fn of_volume(infos: Vec<SubvolumeInfo>, is_all: bool) -> Subvolumes {
        let paths = infos.iter().map(|info| (info.id, info.path.clone()));
        let paths: BTreeMap<u64, Option<PathBuf>> = paths.collect();
        let listed = infos.into_iter().map(|info| {
            let above = info.parent_id.and_then(|id| paths.get(&id)?.as_ref());
            let path = info.path.as_ref().zip(above);
            let path = path.and_then(|(path, above)| path_from(above, path));
            let path = path.map(<[u8]>::to_vec);
            Listed::of_volume(info, path)
        });
        Subvolumes {
            by_id: listed.map(|listed| (listed.id, listed)).collect(),
            top: RootId::FS_TREE,
            is_all,
        }
    }

    /// Queries the subvolumes of a mount that the caller may see. `asked` is the file at a location.
    pub(super) fn ask_at(asked: &Asked, location: &Location) -> anyhow::Result<Subvolumes> {
        let path = location.written_path().canonicalize();
        let mountpoint = path.and_then(|path| mountpoint_of(&path));
        let mountpoint = mountpoint.with_context(|| format!("cannot access '{location}'"))?;
        Subvolumes::ask(asked, &mountpoint)
    }

    /// Queries a mount from any place in it. A caller that may not see all subvolumes gets those below `top`.
    pub(super) fn ask(asked: &Asked, top: &Path) -> anyhow::Result<Subvolumes> {
        let found =
            ioctls::Subvolumes::ask(asked, top).context("cannot see which subvolumes there are")?;
        let listed = found.infos.into_iter().map(|info| {
            let listed = Listed::of_mount(info, |dir| found.dirs.get(&dir).cloned());
            (listed.id, listed)
        });
        Ok(Subvolumes {
            by_id: listed.collect(),
            top: found.top,
            is_all: found.is_all,
        })
    }

    /// Adds the subvolume with this root directory, if it is missing. The caller may be unable to read a
    /// directory above it.
    pub(super) fn add(&mut self, root: &Asked) -> anyhow::Result<()> {
        let info = ioctls::info_of(&root.subvolume_info()?);
        // Its name is known, but not its path.
        let listed = Listed::of_mount(info, |_| None);
        self.by_id.entry(listed.id).or_insert(listed);
        Ok(())
    }

    pub(super) fn get(&self, id: RootId) -> Option<&Listed> {
        self.by_id.get(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Listed> {
        self.by_id.values()
    }

    /// Returns the path from `from` if that contains the subvolume, and the path from the top otherwise.
    /// Returns None for a deleted subvolume.
    pub(super) fn path(&self, id: RootId, from: Option<RootId>) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = id;
        // A loop of subvolumes would return to one that was visited.
        for _ in 0..=self.by_id.len() {
            names.push(self.get(at)?.path.as_deref()?);
            let parent = self.parent(at)?;
            if parent == self.top || Some(parent) == from {
                names.reverse();
                return Some(names.join(&b'/'));
            }
            at = parent;
        }
        None
    }

    /// Returns all subvolumes below a subvolume, each before its parent.
    pub(super) fn below(&self, id: RootId) -> Vec<RootId> {
        let mut found = vec![id];
        let mut seen = 0;
        while let Some(&above) = found.get(seen) {
            seen += 1;
            for listed in self.all() {
                if listed.parent == Some(above) && !found.contains(&listed.id) {
                    found.push(listed.id);
                }
            }
        }
        found.split_off(1).into_iter().rev().collect()
    }

    /// Returns the parent subvolume.
    pub(super) fn parent(&self, id: RootId) -> Option<RootId> {
        self.get(id)?.parent
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs::Access;

    use super::*;

    /// Returns the number of tree blocks that `read` looked at.
    fn blocks_of(volume: &Volume, read: impl FnOnce()) -> u64 {
        let looks = || {
            let stats = volume.engine().node_store().stats();
            stats.hits + stats.misses
        };
        let before = looks();
        read();
        looks() - before
    }

    #[test]
    fn one_subvolume_is_read_without_all_others() {
        let volume = Volume::in_memory(256 << 20).unwrap();
        let root = volume.root();
        root.create_dir("/dir").unwrap();
        let above = root.create_subvolume("/dir/above").unwrap();
        above.create_dir("/deep").unwrap();
        let id = above.create_subvolume("/deep/sub").unwrap().id();
        let read = || {
            let one = Subvolumes::read_one(&volume, RootId(id)).unwrap();
            assert_eq!(one.all().count(), 3);
            assert_eq!(one.path(RootId(id), None).unwrap(), b"dir/above/deep/sub");
            let from = Some(RootId(above.id()));
            assert_eq!(one.path(RootId(id), from).unwrap(), b"deep/sub");
        };
        let few = blocks_of(&volume, read);
        for number in 0..200 {
            let to = format!("/s{number}");
            root.snapshot("/", to, Access::Writable).unwrap();
        }
        // The root tree has one more level.
        let many = blocks_of(&volume, read);
        assert!(
            many <= few * 2,
            "{many} blocks, and {few} of three subvolumes"
        );
        let all = Subvolumes::read(&volume).unwrap();
        assert_eq!(all.all().count(), 203);
        assert_eq!(all.path(RootId(id), None).unwrap(), b"dir/above/deep/sub");
        let none = Subvolumes::read_one(&volume, RootId(9999)).unwrap();
        assert_eq!(none.all().count(), 0);
    }
}
