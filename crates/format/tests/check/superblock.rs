//! Defects of the system chunk array, in superblocks written by the kernel.

use std::path::Path;

use ubtrfs_format::check::CorruptChunk;
use ubtrfs_format::item::Chunk;
use ubtrfs_format::key::DiskKey;
use ubtrfs_format::superblock::{Superblock, SuperblockError};
use zerocopy::{FromBytes, IntoBytes};

const OFFSET: u64 = 65536;

/// Validates the superblock after a change of its first system chunk, with a new checksum.
fn with_chunk(edit: impl FnOnce(&mut Chunk)) -> Result<(), SuperblockError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/superblocks");
    let mut bytes = std::fs::read(folder.join("crc32c.bin")).expect("superblock");
    let superblock = Superblock::mut_from_bytes(&mut bytes).expect("4 KiB");
    assert_eq!(superblock.validate(OFFSET), Ok(()));
    let chunk = &mut superblock.sys_chunk_array[size_of::<DiskKey>()..];
    let (chunk, _) = Chunk::mut_from_prefix(chunk.as_mut_bytes()).expect("chunk");
    edit(chunk);
    superblock.seal();
    superblock.validate(OFFSET)
}

#[test]
fn system_chunks_are_judged_as_those_of_the_chunk_tree() {
    assert_eq!(with_chunk(|_| {}), Ok(()));
    assert!(matches!(
        with_chunk(|chunk| chunk.length.set(0)),
        Err(SuperblockError::SystemChunk {
            defect: CorruptChunk::Length(0),
            ..
        })
    ));
    assert!(matches!(
        with_chunk(|chunk| chunk.stripe_len.set(4096)),
        Err(SuperblockError::SystemChunk {
            defect: CorruptChunk::StripeLen(4096),
            ..
        })
    ));
}
