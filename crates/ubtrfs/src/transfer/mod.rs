//! Trees of files copied, walked, archived, unpacked and removed: between volumes, directories of this machine and
//! tar archives.
//!
//! This is what the commands `cp`, `mv`, `rm`, `ls`, `import` and `export` of ubtrfs do, without their output. An
//! [`Observer`] hears of progress and of what failed. A transfer goes on past files that it cannot transfer, unless all
//! that follows would fail as well ([`is_final_error`]).
//!
//! **This module is younger than the rest of the library, and may change in any release.** It works on the engine below
//! a [`Volume`](crate::Volume) and on handles of inodes, not on paths: other crates of this project use it so.
//! Paths are for messages only: any bytes, which [`Escaped`] shows.
//!
//! ```
//! use ubtrfs::Volume;
//! use ubtrfs::transfer::copy::{
//!     Copier, CopyOptions, CopyProblem, FromHost, HostFile, ToVolume, Top,
//! };
//! use ubtrfs::transfer::{Escaped, Observer};
//!
//! struct Report(Vec<String>);
//!
//! impl Observer<CopyProblem> for Report {
//!     fn failed(&mut self, path: &[u8], problem: CopyProblem) {
//!         self.0.push(format!("{}: {problem}", Escaped(path)));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = tempfile::tempdir()?;
//! # std::fs::write(host.path().join("notes"), "first")?;
//! let volume = Volume::in_memory(256 << 20)?;
//! volume.root().create_dir("/backup")?;
//! let source = FromHost { images: Vec::new() };
//! let destination = ToVolume::new(volume.engine(), true, 0o022);
//! let mut report = Report(Vec::new());
//! let mut copier = Copier::new(&source, destination, CopyOptions::default(), &mut report);
//! let top = Top { dir: volume.root().find("/backup")?, shown: b"/backup".to_vec() };
//! copier.copy_contents(&HostFile::open(host.path(), true)?, top, b"home")?;
//!
//! assert_eq!(volume.root().read("/backup/notes")?, b"first");
//! assert!(report.0.is_empty());
//! # Ok(())
//! # }
//! ```

pub mod copy;
mod device_number;
mod escaped;
mod file_data;
mod final_error;
mod observer;
pub mod owners;
pub(crate) mod removal;
pub mod tar;
pub mod unpack;
pub mod walk;
pub mod xattr_text;

pub use self::device_number::DeviceNumber;
pub use self::escaped::{Escaped, is_unsafe_to_print};
pub use self::file_data::Damage;
pub use self::final_error::is_final_error;
pub use self::observer::Observer;
