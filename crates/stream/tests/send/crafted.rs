//! Snapshots with items that no kernel creates: they cause an error, and no stream is endless.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{OpenOptions as VolumeOptions, Snapshot, Volume};
use ubtrfs_sim::craft::{Crafted, Items, mutate};
use ubtrfs_sim::{Progress, Rng, seed};
use ubtrfs_stream::{
    Command, CommandSink, CorruptFile, SendError, SendOptions, Sender, WriteError,
};

use crate::edits::Editor;
use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, V1, V2_COMPRESSED};

/// Location of extent offsets in an item.
const EXTENT_OFFSET_AT: usize = 37;
/// More commands than any of these volumes needs.
const MAX_COMMANDS: usize = 100_000;

/// Offsets of mode and flags in an inode item.
const MODE_AT: usize = 52;
const FLAGS_AT: usize = 64;

/// A sink that keeps the text of commands.
#[derive(Default)]
struct Said(Vec<String>);

impl CommandSink for Said {
    fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError> {
        self.0.push(format!("{command:?}"));
        Ok(())
    }
}

/// A sink that counts commands, and fails if there are too many.
#[derive(Default)]
struct Count(usize);

impl CommandSink for Count {
    fn write(&mut self, _: &Command<'_>) -> Result<(), WriteError> {
        self.0 += 1;
        assert!(self.0 <= MAX_COMMANDS, "the stream has no end");
        Ok(())
    }
}

struct Made {
    crafted: Crafted,
    old: RootId,
    new: RootId,
}

impl Made {
    fn new(source: Source) -> Made {
        let files = source.close();
        let volume = Volume::open(files.devices(), &VolumeOptions::new()).unwrap();
        let id = |name: &[u8]| {
            let top = volume.root_dir(RootId::FS_TREE).unwrap();
            volume.resolve(top, name).unwrap().root
        };
        Made {
            crafted: Crafted::load(files.devices()),
            old: id(b"old"),
            new: id(b"new"),
        }
    }

    fn send(&self, crafted: &Crafted, with_parent: bool, options: SendOptions) -> Outcome {
        self.send_to(&mut Count::default(), crafted, with_parent, options)
    }

    fn send_to(
        &self,
        out: &mut dyn CommandSink,
        crafted: &Crafted,
        with_parent: bool,
        options: SendOptions,
    ) -> Outcome {
        let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> = crafted
            .devices()
            .into_iter()
            .map(|(path, device)| (path, device as Arc<dyn BlockDevice>))
            .collect();
        let volume = Volume::from_devices(devices, &VolumeOptions::new()).ok()?;
        let new = Snapshot::open(&volume, self.new).ok()?;
        let old = Snapshot::open(&volume, self.old).ok()?;
        let mut sender = Sender::new(&new, options);
        if with_parent {
            sender = sender.parent(&old);
        }
        Some(sender.send(out))
    }
}

/// None if the volume or snapshot cannot be opened.
type Outcome = Option<Result<(), SendError>>;

/// Creates two snapshots with directories and files whose extents are partially shared.
fn made() -> Made {
    let mut source = Source::new("");
    let live = source.live();
    for dir in ["above", "above/below"] {
        fs::create_dir(live.join(dir)).unwrap();
        fs::write(live.join(dir).join("file"), vec![1; 100_000]).unwrap();
    }
    source.snapshot("old");
    fs::write(live.join("above/below/later"), vec![2; 100_000]).unwrap();
    let file = OpenOptions::new()
        .write(true)
        .open(live.join("above/file"))
        .unwrap();
    file.write_all_at(&[3; 8192], 40_960).unwrap();
    drop(file);
    clone(&live.join("above/below/later"), &live.join("clone"));
    source.snapshot("new");
    Made::new(source)
}

fn clone(from: &Path, to: &Path) {
    let from = File::open(from).unwrap();
    from.sync_all().unwrap();
    rustix::fs::ioctl_ficlone(File::create(to).unwrap(), from).unwrap();
}

/// Applies `edit` to the items of all subvolumes.
fn edited(made: &Made, edit: impl Fn(&mut (Key, Vec<u8>)) -> bool) -> Crafted {
    let mut crafted = made.crafted.clone();
    let mut changed = 0;
    for owner in [RootId(256), made.old, made.new] {
        changed += crafted.edit_leaves(owner, |items: &mut Items| {
            items
                .iter_mut()
                .filter_map(|item| edit(item).then_some(()))
                .count()
                > 0
        });
    }
    assert!(changed > 0);
    crafted
}

#[track_caller]
fn refused(made: &Made, crafted: &Crafted, wanted: CorruptFile) {
    for options in [V1, V2_COMPRESSED] {
        for with_parent in [false, true] {
            let sent = made.send(crafted, with_parent, options);
            let is_named =
                matches!(&sent, Some(Err(SendError::Corrupt { what, .. })) if *what == wanted);
            assert!(is_named, "{with_parent}: {sent:?}");
        }
    }
}

fn is_ref_to(item: &(Key, Vec<u8>), name: &[u8]) -> bool {
    item.0.item_type == KeyType::INODE_REF && item.1.ends_with(name)
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    for name in [&b"../er"[..], b"l/ter", b"lat\0r"] {
        let crafted = edited(&made, |item| {
            let is_one = is_ref_to(item, b"later");
            if is_one {
                let at = item.1.len() - name.len();
                item.1[at..].copy_from_slice(name);
            }
            is_one
        });
        refused(&made, &crafted, CorruptFile::Name);
    }
}

#[test]
fn parents_that_are_no_directories_are_refused() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    // The inode number of "above/file", which is not a directory.
    let crafted = edited(&made, |item| {
        let is_one = is_ref_to(item, b"later");
        if is_one {
            item.0.offset = 258;
        }
        is_one
    });
    refused(&made, &crafted, CorruptFile::NotDirectory);
}

#[test]
fn directories_that_hold_themselves_are_refused() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    let crafted = edited(&made, |item| {
        let is_one = is_ref_to(item, b"above");
        if is_one {
            item.0.offset = 259;
        }
        is_one
    });
    refused(&made, &crafted, CorruptFile::Loop);
}

#[test]
fn parts_beyond_their_extent_are_refused() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    for offset in [0_u64.wrapping_sub(4096), 1 << 40] {
        let crafted = edited(&made, |(key, bytes)| {
            let is_one = key.item_type == KeyType::EXTENT_DATA
                && matches!(FileExtent::decode(bytes), Some(FileExtent::Regular { body, .. })
                    if body.disk().is_some());
            if is_one {
                bytes[EXTENT_OFFSET_AT..][..8].copy_from_slice(&offset.to_le_bytes());
            }
            is_one
        });
        refused(&made, &crafted, CorruptFile::ExtentRange);
    }
}

/// Any damage with valid checksums gives a stream or an error.
#[test]
fn mutated_snapshots_are_sent_or_refused() {
    if !available_or_skip() {
        return;
    }
    let mut rng = Rng::new(seed("send mutated"));
    let is_soak = std::env::var_os("UBTRFS_SOAK").is_some();
    let (volumes, rounds) = if is_soak { (20, 3000) } else { (1, 150) };
    let progress = Progress::new("send mutated", volumes * rounds);
    for _ in 0..volumes {
        let mut source = Source::new(",compress=zstd");
        Editor::new(&source.live(), &mut rng).edit(80);
        source.snapshot("old");
        Editor::new(&source.live(), &mut rng).edit(40);
        source.snapshot("new");
        let made = Made::new(source);
        for _ in 0..rounds {
            let mut crafted = made.crafted.clone();
            for _ in 0..1 + rng.below(8) {
                let owner = [RootId(256), made.old, made.new][rng.below(3) as usize];
                let level = u8::from(rng.one_in(5));
                let blocks = crafted.blocks_of(owner, level);
                if blocks.is_empty() {
                    continue;
                }
                let bytenr = blocks[rng.below(blocks.len() as u64) as usize];
                let mut block = crafted.block(bytenr);
                mutate(&mut block, &mut rng);
                crafted.put_block(bytenr, &mut block);
            }
            for options in [V1, V2_COMPRESSED] {
                for with_parent in [false, true] {
                    let _ = made.send(&crafted, with_parent, options);
                }
            }
            progress.step(|| "");
        }
    }
}

/// The kernel does the same. Versions 1 and 2 have no command for verity.
#[test]
fn files_with_verity_are_sent_as_others() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    let mut crafted = made.crafted.clone();
    let mut changed = 0;
    for owner in [RootId(256), made.old, made.new] {
        changed += crafted.edit_leaves(owner, |items: &mut Items| {
            let is_file = |(key, item): &&mut (Key, Vec<u8>)| {
                key.item_type == KeyType::INODE_ITEM && item[MODE_AT + 1] & 0xf0 == 0x80
            };
            let files: Vec<u64> = items
                .iter_mut()
                .filter(is_file)
                .map(|(key, item)| {
                    // The upper half of the flags.
                    item[FLAGS_AT + 4] |= 1;
                    key.objectid
                })
                .collect();
            for &ino in &files {
                for kind in [KeyType::VERITY_DESC_ITEM, KeyType::VERITY_MERKLE_ITEM] {
                    items.push((Key::new(ino, kind, 0), vec![7; 40]));
                }
            }
            items.sort_by_key(|(key, _)| *key);
            !files.is_empty()
        });
    }
    assert!(changed > 0);
    for with_parent in [false, true] {
        for options in [V1, V2_COMPRESSED] {
            let said = [&made.crafted, &crafted].map(|of| {
                let mut said = Said::default();
                let sent = made.send_to(&mut said, of, with_parent, options);
                sent.unwrap().unwrap();
                said.0
            });
            assert!(!said[0].is_empty());
            assert_eq!(said[0], said[1]);
        }
    }
}
