//! Walks any reader from its root and builds a manifest.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::content::ContentHasher;
use super::{Content, Digest, Entry, Fault, Kind, Manifest, Stat};

const READ_BYTES: usize = 1 << 20;

/// A name, and its kind if the directory has it.
pub type Listed = (Vec<u8>, Option<Kind>);

/// Name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// A reader of a volume. Nodes are its handles, such as an inode number and its subvolume.
pub trait Source {
    type Node;
    type Error: Display;

    fn root(&mut self) -> Result<Self::Node, Self::Error>;

    /// Lists a directory, without `.` and `..`, in any order.
    fn list(&mut self, dir: &Self::Node) -> Result<Vec<Listed>, Self::Error>;

    /// Looks up a name, crossing into subvolumes but not following symlinks. Returns None for a missing name.
    fn lookup(&mut self, dir: &Self::Node, name: &[u8]) -> Result<Option<Self::Node>, Self::Error>;

    fn stat(&mut self, node: &Self::Node) -> Result<Stat, Self::Error>;

    fn readlink(&mut self, node: &Self::Node) -> Result<Vec<u8>, Self::Error>;

    /// Reads all extended attributes visible to root, with ACLs as the xattrs `system.posix_acl_*`.
    fn xattrs(&mut self, node: &Self::Node) -> Result<Vec<Xattr>, Self::Error>;

    /// Fills `buf`, or less only at the end of the file; returns the length.
    fn read(
        &mut self,
        node: &Self::Node,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Self::Error>;

    /// Finds the first offset at or after `offset` that may have data. Returns None if there is only a hole.
    fn next_data(&mut self, node: &Self::Node, offset: u64) -> Result<Option<u64>, Self::Error>;
}

pub(super) fn walk<S: Source>(source: &mut S) -> Manifest {
    let mut walk = Walk {
        source,
        manifest: Manifest::default(),
        buf: vec![0; READ_BYTES],
    };
    match walk.source.root() {
        Ok(root) => walk.node(Vec::new(), &root, None),
        Err(error) => walk.fault(&[], "root", error),
    }
    let mut manifest = walk.manifest;
    manifest.entries.sort_by(|a, b| a.path.cmp(&b.path));
    manifest
}

struct Walk<'a, S: Source> {
    source: &'a mut S,
    manifest: Manifest,
    buf: Vec<u8>,
}

impl<S: Source> Walk<'_, S> {
    fn fault(&mut self, path: &[u8], doing: &'static str, reason: impl Display) {
        self.manifest.faults.push(Fault {
            path: path.to_vec(),
            doing,
            reason: reason.to_string(),
        });
    }

    fn node(&mut self, path: Vec<u8>, node: &S::Node, listed: Option<Kind>) {
        let stat = match self.source.stat(node) {
            Ok(stat) => stat,
            Err(error) => return self.fault(&path, "stat", error),
        };
        if let Some(listed) = listed.filter(|listed| *listed != stat.kind) {
            self.fault(
                &path,
                "list",
                format!("listed as {listed:?}, is {:?}", stat.kind),
            );
        }
        let xattrs = self.xattrs(&path, node);
        let content = match stat.kind {
            Kind::File => match self.digest(node, stat.size) {
                Ok(digest) => Content::File(digest),
                Err(reason) => {
                    self.fault(&path, "read", reason);
                    Content::Unread
                }
            },
            Kind::Symlink => match self.source.readlink(node) {
                Ok(target) => Content::Symlink(target),
                Err(error) => {
                    self.fault(&path, "readlink", error);
                    Content::Unread
                }
            },
            _ => Content::None,
        };
        let is_dir = stat.kind == Kind::Dir;
        self.manifest.entries.push(Entry {
            path: path.clone(),
            stat,
            content,
            xattrs,
        });
        if is_dir {
            self.children(&path, node);
        }
    }

    fn xattrs(&mut self, path: &[u8], node: &S::Node) -> BTreeMap<Vec<u8>, super::Value> {
        let mut xattrs = BTreeMap::new();
        match self.source.xattrs(node) {
            Ok(pairs) => {
                for (name, value) in pairs {
                    let shown = name.escape_ascii().to_string();
                    if xattrs.insert(name, value.into()).is_some() {
                        self.fault(path, "xattrs", format!("{shown} twice"));
                    }
                }
            }
            Err(error) => self.fault(path, "xattrs", error),
        }
        xattrs
    }

    fn digest(&mut self, node: &S::Node, size: u64) -> Result<Digest, String> {
        let mut hasher = ContentHasher::default();
        let mut offset = 0;
        while offset < size {
            let data = self.source.next_data(node, offset);
            let Some(data) = data.map_err(|error| format!("seek from {offset}: {error}"))? else {
                break;
            };
            if data < offset {
                return Err(format!("seek from {offset}: went back to {data}"));
            }
            if data >= size {
                break;
            }
            offset = data - data % ContentHasher::ALIGN;
            let want = (size - offset).min(READ_BYTES as u64) as usize;
            let buf = &mut self.buf[..want];
            let got = self
                .source
                .read(node, offset, buf)
                .map_err(|error| format!("at {offset}: {error}"))?;
            if got != want {
                return Err(format!("at {offset}: {got} of {want} bytes, size {size}"));
            }
            hasher.update(offset, &self.buf[..want]);
            offset += want as u64;
        }
        // Reads past the end must return nothing.
        match self.source.read(node, size, &mut self.buf[..1]) {
            Ok(0) => Ok(hasher.finish(size)),
            Ok(_) => Err(format!("data past the size {size}")),
            Err(error) => Err(format!("at the end, {size}: {error}")),
        }
    }

    fn children(&mut self, path: &[u8], dir: &S::Node) {
        let mut names = match self.source.list(dir) {
            Ok(names) => names,
            Err(error) => return self.fault(path, "list", error),
        };
        names.sort();
        for pair in names.windows(2) {
            if pair[0].0 == pair[1].0 {
                let name = pair[0].0.escape_ascii().to_string();
                self.fault(path, "list", format!("{name} twice"));
            }
        }
        for (name, kind) in names {
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(&name);
            match self.source.lookup(dir, &name) {
                Ok(Some(node)) => self.node(child, &node, kind),
                Ok(None) => self.fault(&child, "lookup", "listed, but not found"),
                Err(error) => self.fault(&child, "lookup", error),
            }
        }
    }
}
