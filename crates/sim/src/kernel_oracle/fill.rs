//! Fills a mounted volume with the hard cases of the format.
//!
//! One submodule a subject. The content follows from the seed; where the kernel puts it, and times that are
//! not set, do not. No orphans or running deletions are left behind, so that a reader that does not
//! replay or clean up shows the same as the kernel.

mod attributes;
mod content;
mod crowd;
mod layout;
mod links;
mod names;
mod special;
mod subvolumes;

pub use content::{Kind, bytes};
pub use names::{colliding_names, name_hash};
pub use subvolumes::set_default_subvolume;

use std::fs;
use std::path::Path;

use crate::error::At;
use crate::{Result, Rng};

/// How much of each hard case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Names of one file in one directory.
    pub hard_links: usize,
    /// Entries of the large directory.
    pub dir_entries: usize,
    /// Extents of the fragmented files.
    pub file_extents: usize,
    /// Size of the larger data files, and the most that one file has of what does not compress.
    pub data_bytes: usize,
    /// Size of the sparse file.
    pub sparse_bytes: u64,
    /// Make a path longer than PATH_MAX, which tools that open by path cannot reach.
    pub beyond_path_max: bool,
    /// Write files without checksums, in which damage to a mirror shows as wrong data.
    pub nodatacow: bool,
}

impl Scale {
    /// Returns the scale for images that are kept, of which the content compresses well.
    pub fn tiny() -> Scale {
        Scale {
            hard_links: 220,
            dir_entries: 120,
            file_extents: 40,
            data_bytes: 30_001,
            sparse_bytes: 1 << 30,
            beyond_path_max: false,
            nodatacow: true,
        }
    }

    /// Gives all data checksums.
    pub fn all_summed(self) -> Scale {
        Scale {
            nodatacow: false,
            ..self
        }
    }

    /// Returns a scale that takes a second or two.
    pub fn small() -> Scale {
        Scale {
            hard_links: 300,
            dir_entries: 1_000,
            file_extents: 500,
            data_bytes: 700_001,
            sparse_bytes: 8 << 30,
            beyond_path_max: true,
            nodatacow: true,
        }
    }

    /// Returns a scale with a directory of 100,000 and files of 10,000 extents.
    pub fn full() -> Scale {
        Scale {
            hard_links: 1_000,
            dir_entries: 100_000,
            file_extents: 10_000,
            data_bytes: 9_000_001,
            sparse_bytes: 4 << 40,
            beyond_path_max: true,
            nodatacow: true,
        }
    }
}

/// The outcome of a fill, as far as a volume's features decide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names that one file got in one directory: fewer than asked for without EXTREF.
    pub hard_links: usize,
    /// Value of the largest xattr that fits into a leaf.
    pub xattr_bytes: usize,
}

/// Fills `dir`, a folder on a btrfs volume that the kernel has mounted, for which the caller is root.
pub fn hard_cases(dir: &Path, scale: &Scale, seed: u64) -> Result<Report> {
    let mut rng = Rng::new(seed);
    let mut report = Report::default();
    let place = |name: &str| {
        let path = dir.join(name);
        fs::create_dir(&path).at("create", &path).map(|()| path)
    };
    report.hard_links = links::fill(&place("links")?, scale)?;
    names::fill(&place("names")?)?;
    special::fill(&place("special")?)?;
    content::fill(&place("content")?, scale, &mut rng)?;
    layout::fill(&place("layout")?, scale, &mut rng)?;
    crowd::fill(&place("crowd")?, scale, &mut rng)?;
    subvolumes::fill(&place("subvolumes")?, &mut rng)?;
    report.xattr_bytes = attributes::fill(&place("attributes")?, scale, &mut rng)?;
    sync(dir)?;
    Ok(report)
}

/// Commits, so that what follows finds extents on disk.
fn sync(dir: &Path) -> Result<()> {
    let handle = fs::File::open(dir).at("open", dir)?;
    rustix::fs::syncfs(handle).at("syncfs", dir)
}

fn write(path: &Path, data: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, data).at("write", path)
}
