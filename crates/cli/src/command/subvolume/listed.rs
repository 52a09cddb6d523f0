//! The list of subvolumes, from an open volume or a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use rustix::io::Errno;
use ubtrfs::{SubvolumeInfo, Uuid, Volume};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, FileTime, SubvolumeInfo as EngineInfo};

use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{self, Asked};
use crate::volume_access::location::Location;
use crate::volume_access::reason::Reasoned;

/// A subvolume with its place.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) info: SubvolumeInfo,
    /// The path within its parent subvolume.
    path: Option<Vec<u8>>,
    /// The last name of the path, which may be known without the path. None without a place.
    pub(super) name: Option<Vec<u8>>,
}

impl Listed {
    /// Creates an entry from a subvolume of a volume. `path` is relative to its parent subvolume.
    fn of_volume(info: SubvolumeInfo, path: Option<Vec<u8>>) -> Listed {
        Listed {
            info,
            name: path.as_deref().and_then(last_name),
            path,
        }
    }

    /// Creates an entry from a mount's information. `dir_path` returns the path of a directory in its
    /// subvolume.
    fn of_mount(info: EngineInfo, dir_path: impl Fn(FileId) -> Option<Vec<u8>>) -> Listed {
        let path = info.place.as_ref().and_then(|place| {
            let mut path = dir_path(place.dir)?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&place.name);
            Some(path)
        });
        Listed {
            info: SubvolumeInfo::of_engine(&info, None),
            path,
            name: info.place.map(|place| place.name),
        }
    }

    pub(super) fn id(&self) -> RootId {
        RootId(self.info.id)
    }

    /// Returns the subvolume that contains it.
    fn parent(&self) -> Option<RootId> {
        self.info.parent_id.map(RootId)
    }

    /// Returns the UUID. Volumes of old kernels lack it.
    pub(super) fn uuid(&self) -> Option<Uuid> {
        Some(self.info.uuid).filter(|uuid| !uuid.is_nil())
    }

    /// Returns the time of creation, if it is known.
    pub(super) fn created(&self) -> Option<SystemTime> {
        let created = self.info.created;
        (FileTime::from(created).sec != 0).then_some(created)
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

const CANNOT_SEE: &str = "cannot see which subvolumes there are";

/// Returns where the volume of a path in a mount is mounted.
pub(super) fn mountpoint(location: &Location) -> anyhow::Result<PathBuf> {
    let path = location.written_path().canonicalize();
    let mountpoint = path.and_then(|path| mountpoint_of(&path));
    mountpoint.with_context(|| format!("cannot access '{location}'"))
}

/// Returns a subvolume and all below it, each after the one that holds it.
pub(super) fn all_below<E>(
    id: RootId,
    nested: impl Fn(RootId) -> Result<Vec<RootId>, E>,
) -> Result<Vec<RootId>, E> {
    let mut found = vec![id];
    // Damaged subvolumes may hold each other.
    let mut known = BTreeSet::from([id]);
    let mut seen = 0;
    while let Some(&above) = found.get(seen) {
        seen += 1;
        let below = nested(above)?.into_iter();
        found.extend(below.filter(|below| known.insert(*below)));
    }
    Ok(found)
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
        Subvolumes::read_some(volume, [id])
    }

    /// Reads one subvolume, all below it, and those above it.
    pub(super) fn read_below(volume: &Volume, id: RootId) -> anyhow::Result<Subvolumes> {
        let engine = volume.engine();
        let found = all_below(id, |above| {
            let nested = engine.nested_subvolumes(above)?.into_iter();
            anyhow::Ok(nested.map(|(id, _)| id).collect())
        })?;
        Subvolumes::read_some(volume, found)
    }

    /// Reads one subvolume, its snapshots, and those above them.
    pub(super) fn read_with_snapshots(volume: &Volume, id: RootId) -> anyhow::Result<Subvolumes> {
        let mut wanted = vec![id];
        if let Some(info) = volume.subvolume_info(id.0).reason()?
            && !info.uuid.is_nil()
        {
            wanted.extend(volume.engine().snapshots_of(&info.uuid)?);
        }
        Subvolumes::read_some(volume, wanted)
    }

    /// Reads subvolumes and those above them.
    fn read_some(
        volume: &Volume,
        wanted: impl IntoIterator<Item = RootId>,
    ) -> anyhow::Result<Subvolumes> {
        let mut infos: BTreeMap<u64, SubvolumeInfo> = BTreeMap::new();
        for id in wanted {
            let mut next = Some(id.0);
            while let Some(at) = next
                // A loop of subvolumes comes back to one that was read.
                && !infos.contains_key(&at)
                && let Some(info) = volume.subvolume_info(at).reason()?
            {
                next = info.parent_id;
                infos.insert(at, info);
            }
        }
        Ok(Subvolumes::of_volume(infos.into_values().collect(), false))
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
            by_id: listed.map(|listed| (listed.id(), listed)).collect(),
            top: RootId::FS_TREE,
            is_all,
        }
    }

    /// Queries the subvolumes of a mount that the caller may see. `asked` is the file at a location.
    pub(super) fn ask_at(asked: &Asked, location: &Location) -> anyhow::Result<Subvolumes> {
        Subvolumes::ask(asked, &mountpoint(location)?)
    }

    /// Queries a mount from any place in it. A caller that may not see all subvolumes gets those below `top`.
    pub(super) fn ask(asked: &Asked, top: &Path) -> anyhow::Result<Subvolumes> {
        let found = ioctls::Subvolumes::ask(asked, top).context(CANNOT_SEE)?;
        Ok(Subvolumes::of_mount(found))
    }

    fn of_mount(found: ioctls::Subvolumes) -> Subvolumes {
        let listed = found.infos.into_iter().map(|info| {
            let listed = Listed::of_mount(info, |dir| found.dirs.get(&dir).cloned());
            (listed.id(), listed)
        });
        Subvolumes {
            by_id: listed.collect(),
            top: found.top,
            is_all: found.is_all,
        }
    }

    /// Asks a mount for some subvolumes and those above them. A caller who may not search gets all that can be reached,
    /// as from [`Subvolumes::ask`].
    pub(super) fn ask_some(
        asked: &Asked,
        top: &Path,
        wanted: impl FnOnce(&Asked) -> Result<Vec<RootId>, Errno>,
    ) -> anyhow::Result<Subvolumes> {
        let found = match wanted(asked).and_then(|ids| ioctls::Subvolumes::ask_some(asked, ids)) {
            Err(Errno::PERM) => ioctls::Subvolumes::ask(asked, top),
            found => found,
        };
        Ok(Subvolumes::of_mount(found.context(CANNOT_SEE)?))
    }

    /// Adds the subvolume with this root directory, if it is missing. The caller may be unable to read a
    /// directory above it.
    pub(super) fn add(&mut self, root: &Asked) -> anyhow::Result<()> {
        let info = ioctls::info_of(&root.subvolume_info()?);
        // Its name is known, but not its path.
        let listed = Listed::of_mount(info, |_| None);
        self.by_id.entry(listed.id()).or_insert(listed);
        Ok(())
    }

    pub(super) fn get(&self, id: RootId) -> Option<&Listed> {
        self.by_id.get(&id)
    }

    pub(super) fn of_uuid(&self, uuid: Uuid) -> Option<RootId> {
        let found = self.all().find(|listed| listed.uuid() == Some(uuid));
        found.map(|listed| listed.id())
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
        let mut children: BTreeMap<RootId, Vec<RootId>> = BTreeMap::new();
        for listed in self.all() {
            if let Some(parent) = listed.parent() {
                children.entry(parent).or_default().push(listed.id());
            }
        }
        let nested = |above| Ok(children.get(&above).cloned().unwrap_or_default());
        let Ok::<_, Infallible>(mut found) = all_below(id, nested);
        found.split_off(1).into_iter().rev().collect()
    }

    /// Returns the parent subvolume.
    pub(super) fn parent(&self, id: RootId) -> Option<RootId> {
        self.get(id)?.parent()
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs::Access;
    use ubtrfs_sim::Scratch;
    use ubtrfs_sim::kernel::{self, KernelMount};

    use super::*;
    use crate::volume_access::ioctls::calls_of;

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

    #[test]
    fn subvolumes_below_one_are_read_without_all_others() {
        let volume = Volume::in_memory(256 << 20).unwrap();
        let root = volume.root();
        let above = root.create_subvolume("/above").unwrap();
        let middle = above.create_subvolume("/middle").unwrap();
        let low = middle.create_subvolume("/low").unwrap();
        let high = above.create_subvolume("/high").unwrap();
        let below = [&low, &high, &middle].map(|of| RootId(of.id()));
        let read = || {
            let found = Subvolumes::read_below(&volume, RootId(above.id())).unwrap();
            assert_eq!(found.below(RootId(above.id())), below);
            assert_eq!(found.path(below[0], None).unwrap(), b"above/middle/low");
        };
        let few = blocks_of(&volume, read);
        for number in 0..200 {
            let to = format!("/s{number}");
            root.snapshot("/", to, Access::Writable).unwrap();
        }
        let many = blocks_of(&volume, read);
        assert!(
            many <= few * 2,
            "{many} blocks, and {few} of four subvolumes"
        );
        let all = Subvolumes::read(&volume).unwrap();
        assert_eq!(all.below(RootId(above.id())), below);
    }

    #[test]
    fn snapshots_of_one_are_read_without_the_paths_of_all_others() {
        let volume = Volume::in_memory(256 << 20).unwrap();
        let root = volume.root();
        let data = root.create_subvolume("/data").unwrap();
        root.create_dir("/kept").unwrap();
        root.snapshot("/data", "/kept/one", Access::ReadOnly)
            .unwrap();
        root.snapshot("/data", "/kept/two", Access::ReadOnly)
            .unwrap();
        let read = || {
            let found = Subvolumes::read_with_snapshots(&volume, RootId(data.id())).unwrap();
            let paths = found
                .all()
                .filter_map(|listed| found.path(listed.id(), None));
            assert!(paths.eq([&b"data"[..], b"kept/one", b"kept/two"]));
        };
        let few = blocks_of(&volume, read);
        for number in 0..200 {
            let to = format!("/s{number}");
            root.snapshot("/", to, Access::Writable).unwrap();
        }
        // All root items are read in turn, which are a few blocks, and the others' paths are not looked up.
        let many = blocks_of(&volume, read);
        assert!(
            many <= few * 2 + 30,
            "{many} blocks, and {few} of four subvolumes"
        );
    }

    /// Makes a volume with nested subvolumes and snapshots, and `others` in directories of their own. Returns the ids
    /// of the one that has both, of the first nested one, and of the last.
    fn make_nested(image: &Path, others: u32) -> [RootId; 3] {
        let volume = Volume::create(image, 256 << 20).unwrap();
        let root = volume.root();
        let above = root.create_subvolume("/above").unwrap();
        let middle = above.create_subvolume("/middle").unwrap();
        let low = middle.create_subvolume("/low").unwrap();
        root.snapshot("/above", "/kept", Access::ReadOnly).unwrap();
        for number in 0..others {
            root.create_dir(format!("/dir{number}")).unwrap();
            let to = format!("/dir{number}/other");
            root.snapshot("/", to, Access::Writable).unwrap();
        }
        let ids = [&above, &middle, &low].map(|of| RootId(of.id()));
        volume.close().unwrap();
        ids
    }

    #[test]
    fn kernel_is_asked_for_one_subvolume_without_all_others() {
        if !kernel::or_skip("the ioctls of commands about one subvolume") {
            return;
        }
        let scratch = Scratch::new().unwrap();
        let calls = [0, 100].map(|others| {
            let image = scratch.path().join(others.to_string());
            let [above, middle, low] = make_nested(&image, others);
            let mount = KernelMount::new(&[image], "").unwrap();
            let asked = Asked::at(mount.path()).unwrap();
            let some = |wanted: &dyn Fn(&Asked) -> Result<Vec<RootId>, Errno>| {
                Subvolumes::ask_some(&asked, mount.path(), wanted).unwrap()
            };
            let one = calls_of(|| {
                let one = some(&|_| Ok(vec![low]));
                assert_eq!(one.path(low, None).unwrap(), b"above/middle/low");
                assert_eq!(one.all().count(), 4);
            });
            let below = calls_of(|| {
                let below = some(&|asked| all_below(above, |id| asked.nested_subvolumes(id)));
                assert_eq!(below.below(above), [low, middle]);
            });
            let snapshots = calls_of(|| {
                let found = some(&|asked| asked.with_snapshots(above));
                let paths = found
                    .all()
                    .filter_map(|listed| found.path(listed.id(), None));
                assert!(paths.eq([&b"above"[..], b"kept"]));
            });
            let of_uuid = calls_of(|| {
                let all = Subvolumes::ask(&asked, mount.path()).unwrap();
                let uuid = all.get(low).unwrap().uuid().unwrap();
                let before = calls_of(|| {
                    let found = some(&|asked| asked.subvolumes_of_uuid(&uuid));
                    assert_eq!(found.of_uuid(uuid), Some(low));
                });
                assert!(before < 20, "{before}");
            });
            assert!(of_uuid > 100 || others == 0, "{of_uuid}");
            [one, below, snapshots]
        });
        let [few, many] = calls;
        // The answers of a search for snapshots are of many items.
        assert_eq!(many[..2], few[..2]);
        assert!(
            many[2] <= few[2] + 10,
            "{many:?}, and {few:?} of few subvolumes"
        );
    }
}
