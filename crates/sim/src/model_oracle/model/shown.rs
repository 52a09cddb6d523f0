//! The model's manifest, and its comparison with another reader's manifest.

use super::files::InodeKey;
use super::inode::{Body, InodeId};
use super::lookup::Found;
use super::{ModelFs, TOP};
use crate::manifest::diff_without;
use crate::manifest::{
    Content, Difference, EMPTY_SUBVOLUME_DIR_INO, Entry, Field, Kind, Manifest, Stat, Time,
};
use crate::vocabulary::FsPath;

/// Represents a time that the model does not know.
const UNKNOWN: Time = Time {
    seconds: i64::MIN,
    nanoseconds: 0,
};

const EMPTY_SUBVOLUME_DIR: Stat = Stat {
    kind: Kind::Dir,
    mode: 0o755,
    uid: 0,
    gid: 0,
    nlink: 1,
    rdev: (0, 0),
    size: 0,
    ino: EMPTY_SUBVOLUME_DIR_INO,
    atime: UNKNOWN,
    mtime: UNKNOWN,
    ctime: UNKNOWN,
    btime: None,
};

impl ModelFs {
    /// Lists the expected output of a reader. Inode numbers are as in `Manifest::canonical`. Unknown times have a
    /// placeholder, so use `compare` for comparisons.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        self.each_entry(&mut |_, entry| manifest.entries.push(entry));
        manifest.entries.sort_by(|a, b| a.path.cmp(&b.path));
        manifest.canonical()
    }

    /// Visits each path with its inode, or with None for an empty subvolume directory. Directories precede their
    /// entries.
    pub(crate) fn each_entry(&self, visit: &mut dyn FnMut(Option<InodeKey>, Entry)) {
        self.show(&FsPath::default(), TOP.root(), visit);
    }

    /// Compares a reader's manifest with the model. Ignores `ignored`, inode numbers except for sharing, and times
    /// that were not set. The model is on the left.
    pub fn compare(&self, shown: &Manifest, ignored: &[Field]) -> Vec<Difference> {
        compare(&self.manifest(), shown, ignored)
    }

    /// Compares the manifest of a reader that only shows the default subvolume.
    pub fn compare_default(&self, shown: &Manifest) -> Vec<Difference> {
        let part = self.manifest().below(self.default_path().as_bytes());
        compare(&part.canonical(), shown, &[])
    }

    fn show(&self, path: &FsPath, id: InodeId, visit: &mut dyn FnMut(Option<InodeKey>, Entry)) {
        let inode = self.inode(id);
        let known = |time: Option<Time>| time.unwrap_or(UNKNOWN);
        let stat = Stat {
            kind: inode.kind(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            rdev: inode.rdev(),
            size: inode.size(),
            ino: id.ino,
            atime: known(inode.atime),
            mtime: known(inode.mtime),
            ctime: UNKNOWN,
            btime: None,
        };
        let content = match &inode.body {
            Body::File(content) => Content::File(content.digest()),
            Body::Symlink(target) => Content::Symlink(target.to_vec()),
            Body::Dir(_) | Body::Special(_) => Content::None,
        };
        let xattrs = inode.xattrs.iter();
        let entry = Entry {
            path: path.as_bytes().to_vec(),
            stat,
            content,
            xattrs: xattrs
                .map(|(name, value)| (name.clone(), value.clone().into()))
                .collect(),
        };
        visit(Some(InodeKey(id)), entry);
        let Body::Dir(dir) = &inode.body else {
            return;
        };
        for (name, entry) in dir.entries.iter() {
            let path = path.join(name);
            match self.follow(id, name, entry) {
                Found::Inode(child) => self.show(&path, child, visit),
                Found::EmptySubvolumeDir => {
                    let entry = Entry {
                        path: path.as_bytes().to_vec(),
                        stat: EMPTY_SUBVOLUME_DIR,
                        content: Content::None,
                        xattrs: Default::default(),
                    };
                    visit(None, entry);
                }
            }
        }
    }
}

/// Compares a model with a reader. Both manifests may be parts (`Manifest::below`).
pub(crate) fn compare(model: &Manifest, shown: &Manifest, ignored: &[Field]) -> Vec<Difference> {
    let mut shown = shown.canonical();
    for entry in &mut shown.entries {
        let Some(wanted) = model.get(&entry.path) else {
            continue;
        };
        // These times cannot be set.
        (entry.stat.ctime, entry.stat.btime) = (wanted.stat.ctime, wanted.stat.btime);
        for (time, wanted) in [
            (&mut entry.stat.atime, wanted.stat.atime),
            (&mut entry.stat.mtime, wanted.stat.mtime),
        ] {
            if wanted == UNKNOWN {
                *time = UNKNOWN;
            }
        }
        if wanted.is_empty_subvolume_dir() {
            // Depends on the directory's owner when the kernel looked up the empty subvolume directory.
            (entry.stat.uid, entry.stat.gid) = (wanted.stat.uid, wanted.stat.gid);
        }
    }
    diff_without(model, &shown, ignored)
}
