//! Options of new volumes by name, as programs in other languages set them.

use std::ffi::OsStr;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_mkfs::Growth;

use super::{Contents, Mkfs};
use crate::error::Result;
use crate::named_option::{NamedOption, set_named};
use crate::subvolume::Access;

const BYTES: &str = "a number of bytes";
const FLAG: &str = "true or false";
const OWNER: &str = "UID:GID";
const PATH: &str = "a path";
const PATHS: &str = "a path, added to earlier ones";
const PROFILE: &str = "single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5 or raid6";

/// The options of new volumes, in the order of documentation.
///
/// ```
/// use ubtrfs::MKFS_OPTIONS;
///
/// for option in MKFS_OPTIONS {
///     println!("{}={}: {}", option.name(), option.syntax(), option.help());
/// }
/// ```
pub static MKFS_OPTIONS: &[NamedOption<Mkfs>] = &[
    NamedOption {
        name: "label",
        syntax: "a text",
        lines: &["Sets the label, of at most 255 bytes."],
        set: |mkfs, text| put(&mut mkfs.options.label, text.as_bytes().to_vec()),
    },
    NamedOption {
        name: "uuid",
        syntax: "a UUID",
        lines: &[
            "Sets the UUID of the volume, which must be unique. The default is a random UUID.",
        ],
        set: |mkfs, text| put(&mut mkfs.uuid, Some(Uuid::parse(text.to_str()?)?)),
    },
    NamedOption {
        name: "data",
        syntax: PROFILE,
        lines: &["Sets the profile of data. The default depends on the number of devices."],
        set: |mkfs, text| {
            put(
                &mut mkfs.options.data,
                Some(Profile::from_name(text.to_str()?)?),
            )
        },
    },
    NamedOption {
        name: "metadata",
        syntax: PROFILE,
        lines: &["Sets the profile of metadata. The default depends on the number of devices."],
        set: |mkfs, text| {
            put(
                &mut mkfs.options.metadata,
                Some(Profile::from_name(text.to_str()?)?),
            )
        },
    },
    NamedOption {
        name: "checksum",
        syntax: "crc32c, xxhash, sha256 or blake2",
        lines: &["Sets the checksum algorithm. The default is crc32c."],
        set: |mkfs, text| {
            put(
                &mut mkfs.options.csum_type,
                CsumType::from_name(text.to_str()?)?,
            )
        },
    },
    NamedOption {
        name: "node_size",
        syntax: BYTES,
        lines: &["Sets the size of a tree block. The default is 16 KiB."],
        set: |mkfs, text| put(&mut mkfs.options.nodesize, Some(parse(text)?)),
    },
    NamedOption {
        name: "sector_size",
        syntax: BYTES,
        lines: &["Sets the size of a data block. The default is 4 KiB."],
        set: |mkfs, text| put(&mut mkfs.options.sectorsize, parse(text)?),
    },
    NamedOption {
        name: "features",
        syntax: "a list as in mkfs.btrfs -O",
        lines: &[
            "Sets and clears features: \"^no-holes,mixed-bg\" clears the first and sets the second.",
        ],
        set: |mkfs, text| {
            // A list with an error changes nothing.
            let mut features = mkfs.options.features;
            features.apply_list(text.to_str()?).ok()?;
            put(&mut mkfs.options.features, features)
        },
    },
    NamedOption {
        name: "rootdir",
        syntax: PATH,
        lines: &[
            "Fills the volume with the contents of a folder of the host, or of a tar archive, compressed or not.",
        ],
        set: |mkfs, text| put(&mut mkfs.contents, Some(Contents::At(path(text)?))),
    },
    NamedOption {
        name: "source_date_epoch",
        syntax: "seconds since 1970",
        lines: &[
            "Uses this time as the current time: then the same options and files produce the same volume, byte for \
               byte. No file has a later time. An empty volume also needs a UUID for that.",
        ],
        set: |mkfs, text| {
            let time = UNIX_EPOCH.checked_add(Duration::from_secs(parse(text)?))?;
            put(&mut mkfs.repeatable, Some(time))
        },
    },
    NamedOption {
        name: "subvolumes",
        syntax: PATHS,
        lines: &[
            "Turns a directory of the initial contents into a subvolume. The path is relative to the contents.",
        ],
        set: |mkfs, text| add_subvolume(mkfs, text, Access::Writable),
    },
    NamedOption {
        name: "read_only_subvolumes",
        syntax: PATHS,
        lines: &["Turns a directory of the initial contents into a read-only subvolume."],
        set: |mkfs, text| add_subvolume(mkfs, text, Access::ReadOnly),
    },
    NamedOption {
        name: "owner",
        syntax: OWNER,
        lines: &["Sets the owner of all initial files. The default is their own."],
        set: |mkfs, text| put(&mut mkfs.fill.owner, Some(owner(text)?)),
    },
    NamedOption {
        name: "root_owner",
        syntax: OWNER,
        lines: &[
            "Sets the owner of the root directory of a volume without initial contents. The default is 0:0.",
        ],
        set: |mkfs, text| put(&mut mkfs.options.root_owner, owner(text)?),
    },
    NamedOption {
        name: "dense",
        syntax: PATHS,
        lines: &[
            "Writes out the holes of an initial file, or of all files in a directory, as zeros.",
        ],
        set: |mkfs, text| {
            mkfs.fill.dense.push(path(text)?);
            Some(())
        },
    },
    NamedOption {
        name: "reflink",
        syntax: FLAG,
        lines: &[
            "Makes an image share blocks with the initial files, if both are on a file system that supports this.",
        ],
        set: |mkfs, text| put(&mut mkfs.fill.reflink, parse(text)?),
    },
    NamedOption {
        name: "growth",
        syntax: "never, if_needed or freely",
        lines: &[
            "Sets whether images may grow to hold the initial contents. The default is never.",
        ],
        set: |mkfs, text| {
            let growth = match text.to_str()? {
                "never" => Growth::Never,
                "if_needed" => Growth::IfNeeded,
                "freely" => Growth::Freely,
                _ => return None,
            };
            put(&mut mkfs.fill.growth, growth)
        },
    },
    NamedOption {
        name: "shrink",
        syntax: FLAG,
        lines: &["Truncates a filled volume to the minimum size at which it is still writable."],
        set: |mkfs, text| put(&mut mkfs.fill.shrink, parse(text)?),
    },
    NamedOption {
        name: "scratch_dir",
        syntax: PATH,
        lines: &["Sets the folder for temporary files while a volume is filled."],
        set: |mkfs, text| put(&mut mkfs.scratch_dir, Some(path(text)?)),
    },
    NamedOption {
        name: "discard_before",
        syntax: FLAG,
        lines: &[
            "Discards the contents of devices before creating a volume on them, as mkfs.btrfs does. The default is \
               false.",
        ],
        set: |mkfs, text| put(&mut mkfs.fill.discard, parse(text)?),
    },
];

impl Mkfs {
    /// Sets an option by its name and a text, for programs that have both as strings. [`MKFS_OPTIONS`] lists the names.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use ubtrfs::{Mkfs, Profile};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let mkfs = Mkfs::default().set("metadata", "raid1")?.set("label", "backups")?;
    /// assert_eq!(mkfs.geometry(2)?.metadata, Profile::Raid1);
    /// let refused = mkfs.set("metadata", "raid7").unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such option, or the text is no value of it (`InvalidInput`).
    pub fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Result<Mkfs> {
        set_named(MKFS_OPTIONS, &mut self, name, value.as_ref())?;
        Ok(self)
    }
}

fn put<T>(place: &mut T, value: T) -> Option<()> {
    *place = value;
    Some(())
}

fn parse<T: FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

fn path(text: &OsStr) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn owner(text: &OsStr) -> Option<(u32, u32)> {
    let (uid, gid) = text.to_str()?.split_once(':')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

fn add_subvolume(mkfs: &mut Mkfs, text: &OsStr, access: Access) -> Option<()> {
    let path = path(text)?;
    *mkfs = mem::take(mkfs).make_subvolume(path, access);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that each option accepts, and one that it refuses, unless it accepts all.
    const TEXTS: &[(&str, &str, Option<&str>)] = &[
        ("label", "backups", None),
        ("uuid", "00000000-0000-0000-0000-000000000007", Some("7")),
        ("data", "raid0", Some("raid7")),
        ("metadata", "raid1", Some("")),
        ("checksum", "xxhash", Some("md5")),
        ("node_size", "32768", Some("32k")),
        ("sector_size", "8192", Some("-1")),
        ("features", "^no-holes", Some("^no-holes,no-such")),
        ("rootdir", "folder", Some("")),
        (
            "source_date_epoch",
            "1000000000",
            Some("18446744073709551615"),
        ),
        ("subvolumes", "home", Some("")),
        ("read_only_subvolumes", "usr", Some("")),
        ("owner", "1000:100", Some("1000")),
        ("root_owner", "1:2", Some("1:2:3")),
        ("dense", "efi", Some("")),
        ("reflink", "true", Some("yes")),
        ("growth", "freely", Some("often")),
        ("shrink", "true", Some("1")),
        ("scratch_dir", "/var/tmp", Some("")),
        ("discard_before", "true", Some("maybe")),
    ];

    #[test]
    fn each_option_is_set_by_name() {
        let names: Vec<_> = MKFS_OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(
            names,
            TEXTS.iter().map(|(name, ..)| *name).collect::<Vec<_>>()
        );
        let before = format!("{:?}", Mkfs::default());
        for (name, good, bad) in TEXTS {
            let set = Mkfs::default().set(name, good).unwrap();
            assert_ne!(format!("{set:?}"), before, "{name}");
            if let Some(bad) = bad {
                let refused = Mkfs::default().set(name, bad).unwrap_err();
                let reason = refused.reason().to_string();
                let beginning = format!("option '{name}': bad value '{bad}', expected ");
                assert!(reason.starts_with(&beginning), "{reason}");
            }
        }
        let unknown = Mkfs::default().set("lable", "x").unwrap_err();
        assert_eq!(unknown.reason().to_string(), "unknown option 'lable'");
    }

    #[test]
    fn paths_are_added_to_earlier_ones() {
        let mkfs = Mkfs::default().set("subvolumes", "a").unwrap();
        let mkfs = mkfs.set("read_only_subvolumes", "b").unwrap();
        let requests = mkfs.fill.subvolumes.iter();
        let requests: Vec<_> = requests
            .map(|of| (of.path.as_path(), of.is_read_only))
            .collect();
        assert_eq!(requests, [("a".as_ref(), false), ("b".as_ref(), true)]);
    }
}
