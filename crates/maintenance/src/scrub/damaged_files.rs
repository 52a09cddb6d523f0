//! The files that damaged data belongs to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_fs::{ExtentUser, FileId, RootsOfBlocks, Volume};

use super::report::{Damage, DamageKind, DamagedFile, DamagedRange, ScrubReport};

/// Adds the files of the damaged data to a report, at most `limit` ranges of them. The list is not complete if damaged
/// trees hide some.
pub(super) fn damaged_files(volume: &Volume, report: &mut ScrubReport, limit: usize) {
    let (files, are_all_files) = files_of(volume, &report.damage, limit);
    report.files = files;
    report.are_all_files = are_all_files && report.unlisted == 0;
}

fn files_of(volume: &Volume, damage: &[Damage], limit: usize) -> (Vec<DamagedFile>, bool) {
    let mut found: BTreeMap<(u64, u64), Vec<DamagedRange>> = BTreeMap::new();
    let mut cache = RootsOfBlocks::default();
    let mut left = limit;
    let mut is_whole = true;
    let mut seen = None;
    for damage in damage.iter().filter(|of| of.kind == DamageKind::Data) {
        let end = damage.logical + damage.len_bytes;
        let mut at = damage.logical;
        // Copies of one range are adjacent in the list.
        if seen == Some((damage.logical, damage.len_bytes)) {
            continue;
        }
        seen = Some((damage.logical, damage.len_bytes));
        while at < end {
            let extent = match volume.data_extent_at(Logical(at)) {
                Ok(Some(extent)) => extent,
                // Deleted since.
                Ok(None) => break,
                Err(_) => {
                    is_whole = false;
                    break;
                }
            };
            let stop = end.min(extent.start.0 + extent.len_bytes);
            let range_len = stop - at;
            let mut take = |user: ExtentUser| {
                if left == 0 {
                    is_whole = false;
                    return ControlFlow::Break(());
                }
                left -= 1;
                let ranges = found.entry((user.root.0, user.ino.0)).or_default();
                ranges.push(DamagedRange {
                    offset: user.offset,
                    len_bytes: range_len,
                });
                ControlFlow::Continue(())
            };
            let within = Some(at - extent.start.0);
            let listed = volume.extent_users(extent.start, within, &mut cache, &mut take);
            is_whole &= listed.is_ok();
            at = stop;
        }
    }
    let files = found.into_iter().map(|((subvolume_id, inode), ranges)| {
        let id = FileId::new(RootId(subvolume_id), InodeNr(inode));
        let paths = volume.inode_paths(id).unwrap_or_default().into_iter();
        DamagedFile {
            subvolume_id,
            inode,
            paths: paths.map(|path| OsString::from_vec(path).into()).collect(),
            ranges: joined(ranges),
        }
    });
    (files.collect(), is_whole)
}

/// Sorts ranges, and joins those that touch.
fn joined(mut ranges: Vec<DamagedRange>) -> Vec<DamagedRange> {
    ranges.sort_unstable();
    let mut joined: Vec<DamagedRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.offset + last.len_bytes >= range.offset => {
                let end = (range.offset + range.len_bytes).max(last.offset + last.len_bytes);
                last.len_bytes = end - last.offset;
            }
            _ => joined.push(range),
        }
    }
    joined
}
