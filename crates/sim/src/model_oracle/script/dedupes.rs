//! A written script: dedupes of arbitrary ranges between files of many sizes.
//!
//! If a range does not end at the end of both files, its last partial sector is omitted. So files count as equal
//! there regardless of their contents.

use super::{At, Data, Flags, FsPath, Op, path};

const SECTOR: u64 = 4096;
const SIZES: [u64; 4] = [1000, SECTOR, 6000, 10_000];
const LENGTHS: [u64; 6] = [1000, SECTOR, 5000, 6000, 2 * SECTOR, 10_000];
const OFFSETS: [(u64, u64); 5] = [(0, 0), (0, SECTOR), (SECTOR, 0), (SECTOR, SECTOR), (512, 0)];
/// Offset of the difference from other files of the same size, if any.
const DIFFERENCES: [Option<usize>; 3] = [None, Some(0), Some(5500)];

/// Returns contents with equal sectors, so that ranges at different offsets are equal, too.
fn content(size: u64, difference: Option<usize>) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size).map(|at| (at % SECTOR % 251) as u8).collect();
    if let Some(byte) = difference.and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1;
    }
    bytes
}

fn make(ops: &mut Vec<Op>, name: String, flags: Flags, bytes: Vec<u8>) -> FsPath {
    let path = path(name);
    ops.push(Op::Create {
        path: path.clone(),
        mode: 0o644,
    });
    if flags != Flags::default() {
        ops.push(Op::SetFlags {
            path: path.clone(),
            flags,
        });
    }
    ops.push(Op::Write {
        at: At::Path(path.clone()),
        offset: 0,
        data: Data::Bytes(bytes),
    });
    path
}

/// Lists deduplications of all ranges between all files, and within each. No byte changes.
pub fn dedupes() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut sources = Vec::new();
    let mut targets = Vec::new();
    let nocow = Flags {
        nocow: true,
        ..Flags::default()
    };
    for size in SIZES {
        let name = format!("source-{size}");
        sources.push(make(&mut ops, name, Flags::default(), content(size, None)));
        for difference in DIFFERENCES {
            let name = format!("target-{size}-{difference:?}");
            let bytes = content(size, difference);
            targets.push(make(&mut ops, name, Flags::default(), bytes));
        }
        let name = format!("nocow-{size}");
        targets.push(make(&mut ops, name, nocow, content(size, None)));
    }
    for from in &sources {
        for to in targets.iter().chain([from]) {
            for len_bytes in LENGTHS {
                for (from_offset, to_offset) in OFFSETS {
                    ops.push(Op::Dedupe {
                        from: At::Path(from.clone()),
                        from_offset,
                        len_bytes,
                        to: At::Path(to.clone()),
                        to_offset,
                    });
                }
            }
        }
    }
    ops
}
