//! Comparison of manifests of equivalent volumes with different inode numbers.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Kind, Manifest};

/// Inode number of the root directory of each subvolume.
const ROOT_INO: u64 = 256;

impl Manifest {
    /// Copies the manifest with inode numbers that depend only on which paths share an inode. The numbers of
    /// subvolume roots and empty subvolume directories do not change; others are derived from the first path of the
    /// inode.
    pub fn canonical(&self) -> Manifest {
        let mut manifest = self.clone();
        // Maps a directory's path to its subvolume: the index of the subvolume's root.
        let mut subvolumes: HashMap<&[u8], usize> = HashMap::new();
        let mut first: HashMap<(usize, u64), u64> = HashMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let parent = entry.path.iter().rposition(|byte| *byte == b'/');
            let parent = &entry.path[..parent.unwrap_or(0)];
            let is_root = entry.stat.kind == Kind::Dir && entry.stat.ino == ROOT_INO;
            let around = subvolumes.get(parent).copied().unwrap_or(0);
            let subvolume = if is_root { index } else { around };
            if entry.stat.kind == Kind::Dir {
                subvolumes.insert(&entry.path, subvolume);
            }
            if !is_root && !entry.is_empty_subvolume_dir() {
                let canonical = ROOT_INO + 1 + index as u64;
                let ino = first.entry((subvolume, entry.stat.ino));
                manifest.entries[index].stat.ino = *ino.or_insert(canonical);
            }
        }
        manifest
    }

    /// Computes a number that is equal for equivalent manifests. Times, owners of empty subvolume directories, and
    /// inode numbers may differ. Other manifests have the same number only by chance.
    pub fn fingerprint(&self) -> u64 {
        self.hashed(true)
    }

    /// Computes a fingerprint like `fingerprint`, but without size and contents of files.
    pub fn fingerprint_without_data(&self) -> u64 {
        self.hashed(false)
    }

    fn hashed(&self, with_data: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        for entry in &self.canonical().entries {
            let stat = &entry.stat;
            if !entry.is_empty_subvolume_dir() {
                (stat.uid, stat.gid).hash(&mut hasher);
            }
            (&entry.path, stat.kind, stat.mode).hash(&mut hasher);
            (stat.nlink, stat.rdev, stat.ino, &entry.xattrs).hash(&mut hasher);
            if with_data || stat.kind != Kind::File {
                (stat.size, &entry.content).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}
