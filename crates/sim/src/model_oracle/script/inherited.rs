//! A written script: directories with a property are reloaded, and new files inherit it.
//!
//! There are enough directories that some inode items end a leaf. Linux 6.18 misses the properties of these.

use super::{Data, FsPath, Op, XattrHow, bytes, path};

const DIRECTORIES: usize = 400;
/// Names of many lengths vary the ends of leaves.
const LONGEST: usize = 40;

fn directory(number: usize) -> FsPath {
    path(format!("{number:03}{}", "x".repeat(number % LONGEST)))
}

/// Lists operations that create directories, read all of them, and only then create a file in each, because a new
/// entry shifts leaves.
pub fn inherited_properties() -> Vec<Op> {
    let mut ops = Vec::new();
    for path in (0..DIRECTORIES).map(directory) {
        ops.push(Op::Mkdir {
            path: path.clone(),
            mode: 0o755,
        });
        ops.push(Op::SetXattr {
            path,
            name: bytes("btrfs.compression"),
            value: Data::Bytes(b"zlib".to_vec()),
            how: XattrHow::Any,
        });
    }
    ops.push(Op::Remount);
    ops.extend((0..DIRECTORIES).map(|number| Op::Stat {
        path: directory(number),
    }));
    ops.extend((0..DIRECTORIES).map(|number| Op::Create {
        path: directory(number).join(b"file"),
        mode: 0o644,
    }));
    ops
}
