//! A volume in memory with shortcuts for its use.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_fs::{Attr, Error, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

const LEN_BYTES: u64 = 512 << 20;

pub(crate) struct World {
    device: Arc<MemDevice>,
    volume: Option<Arc<Volume>>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_features("", 16 << 10)
    }

    /// Creates a world on a volume with features as in `mkfs.btrfs -O`.
    pub(crate) fn with_features(features: &str, nodesize: u32) -> World {
        let mut options = MkfsOptions {
            nodesize: Some(nodesize),
            ..MkfsOptions::default()
        };
        options.features.apply_list(features).unwrap();
        let device = Arc::new(new_volume(&options, LEN_BYTES));
        let volume = Some(open(&device, true));
        World { device, volume }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().unwrap()
    }

    pub(crate) fn top(&self) -> FileId {
        self.volume().root_dir(RootId::FS_TREE).unwrap()
    }

    /// Closes the volume and opens it again.
    pub(crate) fn reopen(&mut self) {
        self.volume = None;
        self.volume = Some(open(&self.device, true));
    }

    /// Opens the volume as after a power cut now, at the last commit.
    pub(crate) fn after_a_crash(&self) -> Arc<Volume> {
        open(&Arc::new(MemDevice::clone(&self.device)), false)
    }

    /// Asserts that the checker finds no fault on the device.
    pub(crate) fn assert_sound(&self) {
        let device: Arc<dyn BlockDevice> = self.device.clone();
        let devices = vec![(PathBuf::from("memory"), device)];
        let report = check_devices(devices, &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.is_spotless(), "{:?}", report.issues);
    }

    /// Returns the current bytes of the device, as after a power cut.
    pub(crate) fn snapshot_of_device(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN_BYTES as usize];
        self.device.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> World {
        let device = MemDevice::new(bytes.len() as u64);
        for (at, part) in bytes.chunks(1 << 20).enumerate() {
            if part.iter().any(|&byte| byte != 0) {
                device.write_at(part, (at as u64) << 20).unwrap();
            }
        }
        let device = Arc::new(device);
        let volume = Some(open(&device, true));
        World { device, volume }
    }

    pub(crate) fn reopen_with(&mut self, options: &OpenOptions) {
        self.volume = None;
        let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> =
            vec![(PathBuf::from("memory"), self.device.clone())];
        self.volume = Some(Volume::from_devices(devices, options).unwrap());
    }

    /// Drops the volume, and returns the bytes of the device.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.volume = None;
        self.snapshot_of_device()
    }

    /// Calls `look` before a commit, after it, and after reopening the volume, read-only and writable.
    pub(crate) fn shows(&mut self, look: impl Fn(&Volume)) {
        look(self.volume());
        self.volume().sync().unwrap();
        look(self.volume());
        self.assert_sound();
        self.volume = None;
        look(&open(&self.device, false));
        self.volume = Some(open(&self.device, true));
        look(self.volume());
    }

    pub(crate) fn file(&self, path: &str) -> FileId {
        self.make(path, &NewInode::file(0o644))
    }

    pub(crate) fn dir(&self, path: &str) -> FileId {
        self.make(path, &NewInode::directory(0o755))
    }

    pub(crate) fn make(&self, path: &str, new: &NewInode<'_>) -> FileId {
        let (dir, name) = self.place(path);
        self.volume().create(dir, name, new).unwrap()
    }

    /// Returns the directory and the name of a path.
    pub(crate) fn place<'p>(&self, path: &'p str) -> (FileId, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (at(self.volume(), dir), name.as_bytes())
    }
}

fn open(device: &Arc<MemDevice>, writable: bool) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let options = OpenOptions::new().writable(writable).commit_interval(None);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

/// Returns the inode at a path from the top.
pub(crate) fn at(volume: &Volume, path: &str) -> FileId {
    find(volume, path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn find(volume: &Volume, path: &str) -> Result<FileId, Error> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.resolve(top, path.as_bytes())
}

pub(crate) fn is_missing(volume: &Volume, path: &str) -> bool {
    matches!(find(volume, path), Err(Error::NotFound))
}

pub(crate) fn attr(volume: &Volume, path: &str) -> Attr {
    volume.attr(at(volume, path)).unwrap()
}

/// Returns the names in a directory, in listing order.
pub(crate) fn names(volume: &Volume, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let dir = at(volume, path);
    volume
        .readdir(dir, 0, &mut |entry| {
            assert_eq!(volume.lookup(dir, &entry.name).unwrap(), Some(entry.id));
            names.push(String::from_utf8(entry.name).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    names
}

/// Returns the indices of a directory's entries.
pub(crate) fn indices(volume: &Volume, path: &str) -> Vec<u64> {
    let mut indices = Vec::new();
    volume
        .readdir(at(volume, path), 0, &mut |entry| {
            indices.push(entry.index);
            ControlFlow::Continue(())
        })
        .unwrap();
    indices
}

/// Returns the keys of all items of an inode.
pub(crate) fn keys_of(volume: &Volume, id: FileId) -> Vec<Key> {
    keys(volume, id.root, id.ino.0)
}

pub(crate) fn keys(volume: &Volume, tree: RootId, objectid: u64) -> Vec<Key> {
    let tree = volume.tree(tree).unwrap();
    let mut cursor = tree.view.cursor();
    let mut found = Vec::new();
    let mut more = cursor
        .seek(&Key::new(objectid, Key::MIN.item_type, 0))
        .unwrap();
    while more
        && let Some((key, _)) = cursor.current()
        && key.objectid == objectid
    {
        found.push(key);
        more = cursor.advance().unwrap();
    }
    found
}

/// Returns names of `len` bytes with the same hash. A CRC is linear, so four bytes can cancel any change.
pub(crate) fn colliding_names(count: u32, len: usize) -> Vec<Vec<u8>> {
    let base = vec![b'n'; len];
    let wanted = name_hash(&base);
    let mut found = vec![base.clone()];
    for number in 1..count {
        let mut name = base.clone();
        name[..4].copy_from_slice(format!("{number:04}").as_bytes());
        // The effect of each bit of the last five bytes, by Gaussian elimination.
        let mut rows: Vec<(u32, u64)> = Vec::new();
        let zero = name_hash(&name);
        for bit in 0..40 {
            let mut flipped = name.clone();
            flipped[len - 5 + bit / 8] ^= 1 << (bit % 8);
            let (mut effect, mut bits) = (name_hash(&flipped) ^ zero, 1u64 << bit);
            for (other, others) in &rows {
                if effect & (1 << (31 - other.leading_zeros())) != 0 {
                    effect ^= other;
                    bits ^= others;
                }
            }
            if effect != 0 {
                rows.push((effect, bits));
            }
        }
        let (mut rest, mut bits) = (zero ^ wanted, 0);
        for (effect, others) in &rows {
            if rest & (1 << (31 - effect.leading_zeros())) != 0 {
                rest ^= effect;
                bits ^= others;
            }
        }
        assert_eq!(rest, 0);
        for bit in (0..40).filter(|bit| bits & (1 << bit) != 0) {
            name[len - 5 + bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(name_hash(&name), wanted);
        if !name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            found.push(name);
        }
    }
    found
}
