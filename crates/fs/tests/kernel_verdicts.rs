//! Blocks with random damage and valid checksums: the kernel and the checker refuse the same ones.
//!
//! One byte of a leaf in a volume's file tree is changed, the checksum is updated, and both read it. A block
//! that the checker refuses must fail in the kernel, and a block that the kernel logs as corrupt must be
//! refused. Needs root and the kernel's btrfs; otherwise the test prints a note and passes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use ubtrfs_format::check::{
    BlockContext, CorruptBlock, CorruptItem, CorruptName, Expect, check_block,
};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::maker::Marks;
use ubtrfs_format::node::{HEADER_SIZE, ITEM_HEAD_SIZE, Node};
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_sim::Rng;
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec, Profile, read_all};

const TEST: &str = "verdicts on damaged blocks";
const MUTATIONS: usize = 60;
const SOAK_MUTATIONS: usize = 2_000;
/// The changed part of an item's beginning. It is followed by names and data, which may be any bytes.
const ITEM_HEAD: u64 = 80;

fn fill(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir.join("dir"))?;
    for number in 0..150u32 {
        let path = dir.join(format!("dir/file-{number}"));
        fs::write(&path, vec![b'x'; number as usize * 20])?;
        fs::hard_link(&path, dir.join(format!("link-{number}")))?;
    }
    let fragmented = File::create(dir.join("fragmented"))?;
    for block in (0..200u64).step_by(2) {
        fragmented.write_all_at(&[block as u8; 4096], block * 4096)?;
        if block % 20 == 0 {
            fragmented.sync_all()?;
        }
    }
    std::os::unix::fs::symlink("dir", dir.join("symlink"))?;
    File::open(dir)?.sync_all()
}

/// The messages that the kernel logs from now on. Some may be dropped if there are many.
struct KernelLog(File);

impl KernelLog {
    fn new() -> io::Result<KernelLog> {
        const O_NONBLOCK: i32 = 0o4000;
        let mut log = File::options()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open("/dev/kmsg")?;
        log.seek(SeekFrom::End(0))?;
        Ok(KernelLog(log))
    }

    /// Returns whether the kernel logged that the block is corrupt.
    fn says_corrupt(&mut self, bytenr: Logical) -> bool {
        let mut record = [0; 8192];
        let mut found = false;
        let block = format!("block={bytenr} ");
        loop {
            match self.0.read(&mut record) {
                Ok(len) => {
                    let line = String::from_utf8_lossy(&record[..len]);
                    found |= line.contains("corrupt leaf") && line.contains(&block);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return found,
                // The record was overwritten before it was read.
                Err(_) => {}
            }
        }
    }
}

/// Returns the leaves of the top level's tree, with the expectations of their parents.
fn leaves(volume: &Volume) -> Vec<Expect> {
    let tree = volume.tree(RootId::FS_TREE).unwrap();
    let root = tree.view.read_root().unwrap();
    let node = root.node();
    assert_eq!(node.level(), 1, "the volume is filled for two levels");
    let expect = |ptr: &ubtrfs_format::node::KeyPtr| Expect {
        bytenr: Logical(ptr.blockptr.get()),
        level: Some(0),
        generation: Some(Transid(ptr.generation.get())),
        owner: Some(RootId::FS_TREE),
        first_key: Some(ptr.key.get()),
    };
    node.ptrs().iter().map(expect).collect()
}

/// Returns the offset of the only copy of a block in the image.
fn place(image: &[u8], expect: &Expect, context: &BlockContext<'_>) -> usize {
    let nodesize = context.nodesize as usize;
    (0x100000..image.len() - nodesize)
        .step_by(4096)
        .find(|&at| check_block(&image[at..at + nodesize], context, expect).is_ok())
        .expect("single metadata")
}

/// Changes one byte of the header, of an item head, or of an item.
fn mutate(block: &mut [u8], rng: &mut Rng) {
    let node = Node::new(block).expect("a whole block");
    let slot = rng.below(node.len() as u64) as usize;
    let head = node.heads()[slot];
    let size = u64::from(head.size.get());
    let at = match rng.below(10) {
        0 => 56 + rng.below(HEADER_SIZE as u64 - 56),
        1 | 2 => (HEADER_SIZE + slot * ITEM_HEAD_SIZE) as u64 + rng.below(17),
        _ if size == 0 => return,
        _ => HEADER_SIZE as u64 + u64::from(head.offset.get()) + rng.below(size.min(ITEM_HEAD)),
    };
    let byte = &mut block[at as usize];
    *byte = match rng.below(3) {
        0 => *byte ^ (1 << rng.below(8)),
        1 => [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
        _ => rng.below(256) as u8,
    };
    CsumType::Crc32c.seal_block(block);
}

/// Returns whether the kernel lacks the check. The kernel compares neither the key of an INODE_EXTREF with
/// its name, nor the owner of a block from read-ahead.
fn is_stricter(error: &CorruptBlock) -> bool {
    matches!(
        error,
        CorruptBlock::Owner { .. }
            | CorruptBlock::Item {
                defect: CorruptItem::Name(CorruptName::Hash { .. }),
                ..
            }
    )
}

/// Returns whether the block has a flag of a NAS maker, which the kernel refuses and readers here accept.
fn is_marked(block: &[u8]) -> bool {
    let node = Node::new(block).expect("a whole block");
    !Marks::of_block(node).is_empty()
}

#[test]
fn damaged_leaves_are_refused_as_the_kernel_does() {
    if !kernel::or_skip(TEST) {
        return;
    }
    let seed = ubtrfs_sim::seed(TEST);
    let mut rng = Rng::new(seed);
    let spec = MkfsSpec::new()
        .device_bytes(200 << 20)
        .metadata(Profile::Single)
        .nodesize(4096);
    let filled = KernelVolume::make(&spec).unwrap();
    let mount = filled.mount("").unwrap();
    fill(mount.path()).unwrap();
    mount.unmount().unwrap();

    let volume = Volume::open(filled.devices(), &OpenOptions::new()).unwrap();
    let leaves = leaves(&volume);
    let superblock = volume.superblock().clone();
    drop(volume);
    let context = BlockContext::new(&superblock);
    let path = &filled.devices()[0];
    let image = fs::read(path).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let count = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => SOAK_MUTATIONS,
        None => MUTATIONS,
    };
    let mut refused = 0;
    for number in 0..count {
        let expect = &leaves[rng.below(leaves.len() as u64) as usize];
        let at = place(&image, expect, &context);
        let sound = &image[at..at + context.nodesize as usize];
        let mut block = sound.to_vec();
        mutate(&mut block, &mut rng);
        let ours = check_block(&block, &context, expect);
        file.write_all_at(&block, at as u64).unwrap();
        file.sync_all().unwrap();
        let mut log = KernelLog::new().unwrap();
        let theirs = filled
            .mount_ro()
            .map_err(drop)
            .and_then(|mount| read_all(mount.path()).map_err(drop));
        file.write_all_at(sound, at as u64).unwrap();
        refused += usize::from(ours.is_err());
        let what = format!("seed {seed}, mutation {number}, block {}", expect.bytenr);
        let corrupt = log.says_corrupt(expect.bytenr);
        match ours {
            // A sound block may still contradict other blocks.
            Ok(()) => assert!(
                !corrupt || is_marked(&block),
                "{what}: passes here, not in the kernel"
            ),
            Err(error) => assert!(
                theirs.is_err() || is_stricter(&error),
                "{what}: passes in the kernel, here {error}"
            ),
        }
    }
    assert!(refused > 0 && refused < count, "{refused} of {count}");
}
