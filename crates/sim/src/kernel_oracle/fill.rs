//! Fills a mounted volume with edge cases of the format.
//!
//! One submodule per subject. The contents depend on the seed; their locations and times that are not set depend on
//! the kernel. There are no orphans or running deletions at the end, so that a reader without log replay or cleanup
//! shows the same as the kernel.

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

/// The size of each edge case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Number of names of one file in one directory.
    pub hard_links: usize,
    /// Number of entries in the large directory.
    pub dir_entries: usize,
    /// Number of extents in the fragmented files.
    pub file_extents: usize,
    /// Size of the larger data files, and the maximum of incompressible data in one file.
    pub data_bytes: usize,
    /// Size of the sparse file.
    pub sparse_bytes: u64,
    /// Whether to create a path longer than PATH_MAX, which tools that open by path cannot reach.
    pub beyond_path_max: bool,
    /// Whether to write files without checksums, in which damage to a mirror appears as wrong data.
    pub nodatacow: bool,
}

impl Scale {
    /// Returns the scale for kept images, with contents that compress well.
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

    /// Enables checksums for all data.
    pub fn all_summed(self) -> Scale {
        Scale {
            nodatacow: false,
            ..self
        }
    }

    /// Returns a scale that takes one or two seconds.
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

    /// Returns a scale with a directory of 100,000 entries and files of 10,000 extents.
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

/// The results of a fill that depend on a volume's features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of names of one file in one directory, which is limited without EXTREF.
    pub hard_links: usize,
    /// Value size of the largest xattr that fits in a leaf.
    pub xattr_bytes: usize,
}

/// Fills `dir`, a folder on a kernel mount of btrfs. Requires root.
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

/// Commits, so that later operations find the extents on disk.
fn sync(dir: &Path) -> Result<()> {
    let handle = fs::File::open(dir).at("open", dir)?;
    rustix::fs::syncfs(handle).at("syncfs", dir)
}

fn write(path: &Path, data: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, data).at("write", path)
}
